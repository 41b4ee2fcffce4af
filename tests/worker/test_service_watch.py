"""A trial's watch over servers that somebody else keeps."""

import time

import pytest

from benchhouse.evidence.writing import now, write_model
from benchhouse.schema.service import ServiceFolder, ServiceState
from benchhouse.worker import service_watch
from benchhouse.worker.service_watch import ServerDiedError, ServiceWatch


def test_a_keeper_on_another_node_that_says_nothing_any_more_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(service_watch, "_SILENT_S", 1.0)
    folder = ServiceFolder(tmp_path)

    def say(checked: str) -> None:
        state = ServiceState(
            id="db", recipe="small", phase="ready", keeper="", host="far", since=now(), checked=checked
        )
        write_model(folder.state, state, sync=False)

    say("0")
    watch = ServiceWatch(lambda said: None)
    try:
        watch.folder("db", folder)
        for number in range(1, 8):  # while it writes, all is well
            time.sleep(0.25)
            say(str(number))
        with pytest.raises(ServerDiedError, match="its keeper on far has written nothing for 1 s"):
            time.sleep(10)
    finally:
        watch.close()
