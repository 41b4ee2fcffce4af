"""Is there a Spark master, and who works for it? Asked in a few bytes: Spark itself waits a minute."""

import socket
import struct
from collections.abc import Mapping

from benchhouse.executors.cluster_engine import Node
from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.schema.clusters import STANDALONE

_ANSWER_S = 8.0
_PAGE_S = 3.0
_ASKED, _REFUSED = 0, 2  # types of messages of Spark's transport: a request of a chunk, and its refusal
_REQUEST = struct.pack(">qbqi", 8 + 1 + 8 + 4, _ASKED, 0, 0)
"""For a chunk of a stream that there is not: whoever speaks the protocol refuses it in the protocol."""


def unanswered(host: str, port: int, conf: Mapping[str, str], limit_s: float = _ANSWER_S) -> str:
    """Why no Spark is there; nothing where it is. One that wants a secret first is believed to be there."""
    try:
        with socket.create_connection((host, port), timeout=limit_s) as connection:
            if conf.get("spark.authenticate") == "true" or conf.get("spark.ssl.rpc.enabled") == "true":
                return ""
            connection.settimeout(limit_s)
            connection.sendall(_REQUEST)
            answer = connection.recv(9)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if answer[8:9] == bytes([_REFUSED]) else "something else than Spark is there"


def page_of(master: str, ui: str | None) -> str:
    found = STANDALONE.fullmatch(master)
    assert found
    return ui or f"http://{found['host']}:8080"


def workers(page: str, master: str) -> list[Node] | None:
    """Those that are alive, as the master's web page tells; None where it does not answer, or is another's.

    Nothing else of Spark says it: an application without executors may wait for its turn, or for nobody.
    """
    try:
        answer = HttpClient(_PAGE_S, proxy=True, redirects=True).get(f"{page.rstrip('/')}/json/")
        state = answer.json() if answer.ok else None
    except NoAnswer:
        return None
    if not isinstance(state, dict) or state.get("url") != master:
        return None
    return [
        Node(
            name=worker["host"],
            cpus=worker["cores"],
            gpus=len(worker.get("resources", {}).get("gpu", {}).get("addresses", [])),
            memory=worker["memory"] << 20,
        )
        for worker in state.get("workers", [])
        if worker.get("state") == "ALIVE"
    ]
