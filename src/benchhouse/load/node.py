"""`python -m benchhouse.load.node FOLDER NODE SHARDS`: the load processes of one node; see nodes.py."""

import json
import os
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic_ns, time_ns

from benchhouse.load.engine import LoadSpec
from benchhouse.load.load_record import LoadRecord, Lost
from benchhouse.load.shards import Child, Pulse
from benchhouse.schema.errors import BenchError

_BEAT_S = 0.25


def main(folder: Path, node: str, shards: list[int]) -> int:
    pipe = os.dup(1)
    os.dup2(2, 1)  # a driver's output goes to the log, not to the reader of our lines

    def send(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())

    load: LoadSpec = pickle.loads((folder / "load.pickle").read_bytes())  # noqa: S301 - from whoever started us
    try:
        load.prepare()
    except BenchError as error:
        send(f"problem {error.message}")
        return 1
    pulse = Pulse(load.shape.shards)
    children = {number: Child(number, partial(load.run, pulse=pulse)) for number in shards}
    try:
        if problems := [problem for child in children.values() if (problem := child.wait_ready())]:
            send(f"problem {problems[0]}")
            return 1
        send("ready")
        edge_ns = _edge(send)
        for child in children.values():
            child.start(edge_ns)
        over = threading.Event()
        beats = threading.Thread(target=_beat, args=(pulse, shards, edge_ns, over, send), daemon=True)
        beats.start()
        results: dict[int, LoadRecord | Lost] = {}
        for number, child in children.items():
            book = child.book()
            results[number] = pulse.last(number, f"on {node} {book}", edge_ns) if isinstance(book, str) else book
        over.set()
        beats.join()
        part = folder / f"{node}.part"
        part.touch(mode=0o600)
        part.write_bytes(pickle.dumps(results))
        part.replace(folder / f"{node}.pickle")
        send("done")
        return 0
    finally:
        for child in children.values():
            child.end()


def _edge(send: Callable[[str], None]) -> int:
    """Return the start time on this node's own clock; until it arrives, answer with the time here."""
    while line := sys.stdin.buffer.readline():
        if line == b"clock\n":
            send(f"{monotonic_ns()} {time_ns()}")
        elif line.startswith(b"edge "):
            return int(line.split()[1])
    sys.exit(1)  # the caller is gone


def _beat(pulse: Pulse, shards: list[int], edge_ns: int, over: threading.Event, send: Callable[[str], None]) -> None:
    """Send the last known state of the load processes, in case this node is lost."""
    while not over.wait(_BEAT_S):
        last = {number: pulse.last(number, "", edge_ns) for number in shards}
        send(f"beat {json.dumps({number: lost.model_dump() for number, lost in last.items()})}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], [int(number) for number in sys.argv[3].split(",")]))
