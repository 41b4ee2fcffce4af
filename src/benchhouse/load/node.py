"""`python -m benchhouse.load.node FOLDER NODE SHARDS`: the load processes of one node; see nodes.py."""

import json
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns, time_ns

from benchhouse.load.book import Book
from benchhouse.load.engine import Load
from benchhouse.load.lost_process import Lost
from benchhouse.load.shards import Child, Pulse
from benchhouse.schema.errors import BenchError

_BEAT_S = 0.25


def main(folder: Path, node: str, shards: list[int]) -> int:
    words = os.dup(1)
    os.dup2(2, 1)  # what a driver prints is no word of ours

    def say(text: str) -> None:
        os.write(words, f"{text}\n".encode())

    load: Load = pickle.loads((folder / "load.pickle").read_bytes())  # noqa: S301 - from whoever started us
    try:
        load.prepare()
    except BenchError as error:
        say(f"problem {error.message}")
        return 1
    pulse = Pulse(load.shape.processes)
    children = {number: Child(number, load.share(pulse)) for number in shards}
    try:
        if problems := [problem for child in children.values() if (problem := child.wait_ready())]:
            say(f"problem {problems[0]}")
            return 1
        say("ready")
        edge_ns = _edge(say)
        for child in children.values():
            child.start(edge_ns)
        over = threading.Event()
        beats = threading.Thread(target=_beat, args=(pulse, shards, edge_ns, over, say), daemon=True)
        beats.start()
        results: dict[int, Book | Lost] = {}
        for number, child in children.items():
            book = child.book()
            results[number] = pulse.last(number, f"on {node} {book}", edge_ns) if isinstance(book, str) else book
        over.set()
        beats.join()
        part = folder / f"{node}.part"
        part.touch(mode=0o600)
        part.write_bytes(pickle.dumps(results))
        part.replace(folder / f"{node}.pickle")
        say("done")
        return 0
    finally:
        for child in children.values():
            child.end()


def _edge(say: Callable[[str], None]) -> int:
    """When to start, in this node's own time; until then, what time it is here is told to whoever asks."""
    while line := sys.stdin.buffer.readline():
        if line == b"clock\n":
            say(f"{monotonic_ns()} {time_ns()}")
        elif line.startswith(b"edge "):
            return int(line.split()[1])
    sys.exit(1)  # nobody is left to start for


def _beat(pulse: Pulse, shards: list[int], edge_ns: int, over: threading.Event, say: Callable[[str], None]) -> None:
    """What is last known of them, for whoever has to do without this node."""
    while not over.wait(_BEAT_S):
        last = {number: pulse.last(number, "", edge_ns) for number in shards}
        told = {number: [it.at_s, it.answered, it.failed, it.in_flight, it.measured] for number, it in last.items()}
        say(f"beat {json.dumps(told)}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], [int(number) for number in sys.argv[3].split(",")]))
