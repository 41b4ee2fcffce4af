"""Compare each function of the compiled load engine with its twin in Python, on random arguments.

The C sources are built with AddressSanitizer and UndefinedBehaviorSanitizer, and a child process runs the rounds. Each
round draws one call, or a sequence of calls of one poller, from the seed and the number of the round. A round fails if
the twins return different values, if they raise different exceptions, or if a sanitizer reports an error. The failing
round is printed with the command that repeats it. Exit status: 0 if all rounds passed, 1 if one failed, 2 if nothing
could be run.

python scripts/fuzz.py [--seconds N] [--seed N] [--first ROUND] [--rounds N] [--only FUNCTION] [--without-sanitizers]
"""

import argparse
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from benchhouse.load import answers_python
from benchhouse.load.poller import PythonPoller
from benchhouse.schema.histogram import PreparedValues

FOLDER = Path(__file__).parent.parent / "src/benchhouse/load"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
FAILED, CANNOT_RUN = 1, 2
LEAST, MOST = -(1 << 63), (1 << 63) - 1
EXACT_FLOAT = 1 << 53


# building and starting


class BuildError(Exception):
    """The modules with sanitizers cannot be built or loaded on this machine; the message says why."""


def build(folder: Path) -> list[str]:
    """Compile every C source of the load engine into `folder`; return the libraries that the child must preload."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        raise BuildError("no C compiler was found; set CC or install gcc")
    for source in sorted(FOLDER.glob("_*.c")):
        target, include = folder / f"{source.stem}.abi3.so", f"-I{sysconfig.get_path('include')}"
        flags = ("-std=gnu11", "-O1", "-g", "-fPIC", "-shared", *SANITIZERS)
        command = [compiler, *flags, include, "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"{source.name} does not compile with sanitizers: {done.stderr.strip()[-500:]}")
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not Path(found).is_absolute():
            raise BuildError(f"{compiler} has no {name}; gcc has it")
        libraries.append(str(Path(found).resolve()))
    return libraries


def run_child(arguments: argparse.Namespace, folder: Path, libraries: Sequence[str]) -> int:
    """Run the rounds in a process that loads the modules from `folder`, under the sanitizers if there are any."""
    environment = dict(os.environ)
    if libraries:
        environment |= {
            "LD_PRELOAD": " ".join(libraries),
            "PYTHONMALLOC": "malloc",  # so that AddressSanitizer sees each allocation of Python
            # Memory that nobody wrote has a pattern, which is a difference from the twin.
            "ASAN_OPTIONS": "detect_leaks=0:max_malloc_fill_size=1000000:malloc_fill_byte=165",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
    current = folder / "round"
    current.write_bytes(bytes(8))
    options = ["--seconds", str(arguments.seconds), "--seed", str(arguments.seed), "--first", str(arguments.first)]
    options += ["--rounds", str(arguments.rounds), "--only", arguments.only, "--modules", str(folder)]
    status = subprocess.run([sys.executable, __file__, *options], env=environment).returncode
    if status not in (0, FAILED) or (status and not (folder / "difference").exists()):
        number = int.from_bytes(current.read_bytes(), "little")
        print(f"the process ended with status {status} in round {number}", file=sys.stderr)
        print(repeat_command(arguments, number), file=sys.stderr)
        return FAILED
    return status


def repeat_command(arguments: argparse.Namespace, number: int) -> str:
    plain = " --without-sanitizers" if arguments.without_sanitizers else ""
    only = f" --only {arguments.only}" if arguments.only else ""
    return f"repeat it: python scripts/fuzz.py --seed {arguments.seed} --first {number} --rounds 1{only}{plain}"


def load(path: Path) -> ModuleType:
    name = path.name.partition(".")[0]
    loader = ExtensionFileLoader(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


# random arguments


def number(draw: Random) -> int:
    """A number of 64 bits: small, near a limit, or anything."""
    kind = draw.randrange(8)
    if kind < 4:
        return draw.randint(-20, 1000)
    if kind == 4:
        return draw.choice((0, EXACT_FLOAT, MOST, LEAST, MOST // 2, LEAST // 2)) + draw.choice((0, 0, 1, -1, 5, -5))
    return draw.getrandbits(draw.randint(1, 63)) * draw.choice((1, 1, -1))


def in_64_bits(value: int) -> int:
    return max(LEAST, min(value, MOST))


def numbers(draw: Random, count: int) -> "array[int]":
    """Numbers of one kind: all small and positive, as stamps are, or anything."""
    if draw.random() < 0.6:
        top = draw.choice((3, 1000, 10**10, EXACT_FLOAT - 1))
        return array("q", [draw.randint(0, top) for _ in range(count)])
    return array("q", [in_64_bits(number(draw)) for _ in range(count)])


def ascending(draw: Random, count: int, step: int, start: int = 0) -> list[int]:
    """Numbers in ascending order, but in one of 20 cases in any order and of any size."""
    if draw.random() < 0.05:
        return [in_64_bits(number(draw)) for _ in range(count)]
    reached = []
    for _ in range(count):
        start += draw.randint(0, step)
        reached.append(start)
    return reached


def length(draw: Random) -> int:
    return draw.randint(0, 1500) if draw.random() < 0.02 else draw.choice((0, 1, 2, 3, draw.randint(0, 30)))


def text(draw: Random, letters: bytes, most: int) -> bytes:
    return bytes(draw.choices(letters, k=draw.randint(0, most)))


def broken(draw: Random, data: bytes) -> bytes:
    """The data; in one of five cases cut off, or with one byte changed."""
    if data and draw.random() < 0.1:
        return data[: draw.randrange(len(data))]
    if data and draw.random() < 0.1:
        place = draw.randrange(len(data))
        return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
    return data


def whole_chunks_arguments(draw: Random) -> tuple[Any, ...]:
    data = b""
    for _ in range(draw.choice((0, 1, 2, 5, 20, 60))):
        content = draw.choice((text(draw, b"ab", 9), text(draw, b"ab", 9), text(draw, b"a\r\n", 5), b"3\r\nabc\r\n"))
        if draw.random() < 0.02:
            content = b"x" * draw.choice((4095, 4096))
        spelling = draw.choice((b"%x", b"%x", b"%x", b"%X", b"%05x", b"%08x"))
        data += spelling % max(len(content) + draw.choice((0,) * 40 + (1, -1)), 0) + b"\r\n" + content + b"\r\n"
    data = broken(draw, data + draw.choice((b"", b"0\r\n\r\n", b"5\r\nab", b"zz\r\n", b"7fffffff\r\na\r\n", b"\r\n")))
    ends = ascending(draw, draw.choice((0, 1, 3, 8)), max(len(data) // 4, 2))
    reads = b"".join(struct.pack("=4q", end, *numbers(draw, 3)) for end in ends)
    reads += bytes(draw.choice((0,) * 30 + (1, 8, 31)))
    return data, reads, draw.choice((0, 0, draw.randint(0, 10**6), in_64_bits(number(draw))))


def alike_arguments(draw: Random) -> tuple[Any, ...]:
    begin = draw.choice((b'data: {"choices":[{"text":"', b'data: {"id":"0123456789abcdef","choices":[{"text":"', b'"a'))
    end = draw.choice((b'"}]}\n\n', b'","index":0,"finish_reason":null}]}\r\n\r\n', b'"\n', b"\\\n", b"\n"))
    if draw.random() < 0.2:
        begin, end = text(draw, b'"a\n', draw.choice((3, 60))), text(draw, b'"a\n\\', draw.choice((3, 60)))
    pieces, others = [], (b"data: [DONE]\n\n", b'data: {"x":1}\n\n', begin, end, end + begin, b"", b"\n", begin[:5])
    for _ in range(900 if draw.random() < 0.02 else draw.choice((0, 1, 3, 10, 40))):
        word = text(draw, b"abcdefgh", 6)
        if draw.random() < 0.05:
            word += draw.choice((b'"', b"\\n", b"\n", b"", end[:3], begin[-3:], b"x" * draw.choice((9, 9, 20_000))))
        pieces.append(begin + word + end if draw.random() < 0.95 else draw.choice(others))
    before = text(draw, b"ab\n", 4)
    at = len(before) if draw.random() < 0.9 else draw.randint(-5, 200)
    return broken(draw, before + b"".join(pieces)), at, begin, end


def arrivals_arguments(draw: Random) -> tuple[Any, ...]:
    ends = ascending(draw, length(draw), draw.choice((1, 5, 40)))
    sizes = ascending(draw, length(draw), draw.choice((1, 5, 40)))
    if draw.random() < 0.8:
        last = ends[-1] if ends else 0
        sizes = [size for size in sizes if size < last] + [in_64_bits(last + draw.randint(0, 9))]
        if draw.random() < 0.3:
            sizes = sorted({*sizes, *(end + draw.randint(0, 4) for end in ends if end < MOST - 4)})
    stamps = numbers(draw, 2 * len(sizes))
    marks = array("q", [value for at, size in enumerate(sizes) for value in (size, *stamps[2 * at : 2 * at + 2])])
    if draw.random() < 0.02:
        marks.extend([1] * draw.randint(1, 2))
    return array("q", ends), marks


def gaps_arguments(draw: Random) -> tuple[Any, ...]:
    return (numbers(draw, length(draw)),)


def sides_arguments(draw: Random) -> tuple[Any, ...]:
    count = length(draw)
    off_by_one = draw.choice((0,) * 30 + (1,))
    values, earlier, later = numbers(draw, count), numbers(draw, count + off_by_one), numbers(draw, count)
    if draw.random() < 0.3:
        later = array("q")
    return values, earlier, later, in_64_bits(number(draw))


def bins_arguments(draw: Random) -> tuple[Any, ...]:
    return numbers(draw, length(draw)), in_64_bits(number(draw)), in_64_bits(number(draw))


def measured_in_python(values: "array[int]") -> tuple[Any, ...] | None:
    """What `measured` returns: None for values that Python has to count, or all facts of a histogram."""
    if min(values, default=0) < 0 or max(values, default=0) >= EXACT_FLOAT:
        return None
    known = PreparedValues(values)
    return known.n, known.low, known.high, known.total, known.squares, dict(Counter(known.buckets))


FUNCTIONS: dict[str, tuple[Callable[[Random], tuple[Any, ...]], Callable[..., Any]]] = {
    "whole_chunks": (whole_chunks_arguments, answers_python.whole_chunks),
    "alike": (alike_arguments, answers_python.alike),
    "arrivals": (arrivals_arguments, answers_python.arrivals),
    "gaps": (gaps_arguments, answers_python.gaps),
    "sides": (sides_arguments, answers_python.sides),
    "bins": (bins_arguments, answers_python.bins),
    "measured": (gaps_arguments, measured_in_python),
}


def outcome(call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What a call returns, or the class of the exception that it raises."""
    try:
        return call(*arguments)
    except (ValueError, LookupError, OSError, OverflowError) as error:
        return type(error)


# pollers


class Sockets:
    """One poller and the sockets that it watches, which are named by their index."""

    def __init__(self, poller: Any, count: int) -> None:
        self.poller = poller
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.index = {ours.fileno(): place for place, (ours, _) in enumerate(self.pairs)}

    def do(self, name: str, place: int, *arguments: Any) -> Any:
        """Do one step; the outcome names no file descriptor and no time, so that twins have the same."""
        ours, theirs = self.pairs[place]
        if name == "send":
            return outcome(theirs.send, arguments)
        if name == "close":
            return theirs.close()
        if name == "wait":
            ready = outcome(self.poller.wait, arguments)
            if isinstance(ready, type):
                return ready
            return [(self.index[fd], mask) for fd, mask in zip(ready[::2], ready[1::2], strict=True)]
        if name == "take":
            taken = outcome(self.poller.take, [ours])
            if isinstance(taken, type):
                return taken
            data, reads, ended = taken
            return data, [end for end, *_ in struct.iter_unpack("=4q", reads)], ended
        if name == "watch_number":
            return outcome(self.poller.watch, arguments)
        return outcome(getattr(self.poller, name), [ours, *arguments])

    def close(self) -> None:
        self.poller.close()
        for pair in self.pairs:
            for end in pair:
                end.close()


def poller_steps(draw: Random, count: int) -> list[tuple[Any, ...]]:
    """Steps for `Sockets.do`. None of them waits, and no answer is so long that its reads depend on a buffer's size."""
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw.randint(1, 40)):
        name = draw.choice(("watch", "watch", "forget", "collect", "take", "send", "send", "wait", "wait", "wait"))
        more: tuple[Any, ...] = ()
        if name == "watch":
            more = (draw.choice((0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)),)
        elif name == "collect":
            more = (draw.choice((-1, 0, 1, 10, 1000, MOST)),)
        elif name == "send":
            more = (draw.choice((b"a", b"\r\n", b"\r\n\r\n", b"x" * draw.randint(1, 300))),)
        elif name == "wait":
            more = (False, draw.choice((0, 0, 1, MOST)))
        if draw.random() < 0.02:
            name, more = "close", ()
        elif draw.random() < 0.02:
            name, more = "watch_number", (draw.choice((-1, 1 << 20, (1 << 31) - 1)), select.EPOLLIN)
        steps.append((name, draw.randrange(count), *more))
    return steps


# rounds


class Twins:
    """The compiled modules, and the comparison of one round."""

    def __init__(self, modules: Path) -> None:
        self.answers = load(modules / "_answers.abi3.so")
        self.poller = load(modules / "_poller.abi3.so")
        compiled = {name for name in vars(self.answers) if not name.startswith("_")}
        if compiled != set(FUNCTIONS):
            raise SystemExit(f"the functions of _answers.c and of this script differ: {compiled ^ set(FUNCTIONS)}")
        self.names = [*FUNCTIONS, "poller"]

    def difference(self, name: str, draw: Random) -> str:
        """Compare the twins in one round; the text is empty if they agree."""
        return self._poller_difference(draw) if name == "poller" else self._call_difference(name, draw)

    def _call_difference(self, name: str, draw: Random) -> str:
        make_arguments, twin = FUNCTIONS[name]
        arguments = make_arguments(draw)
        compiled, python = outcome(getattr(self.answers, name), arguments), outcome(twin, arguments)
        if compiled == python:
            return ""
        return f"{name}{arguments!r}\n  compiled: {compiled!r}\n  Python:   {python!r}"

    def _poller_difference(self, draw: Random) -> str:
        count = draw.randint(1, 3)
        steps = poller_steps(draw, count)
        with ExitStack() as closing:
            twins = [Sockets(make(), count) for make in (self.poller.Poller, PythonPoller)]
            for twin in twins:
                closing.callback(twin.close)
            for at, step in enumerate(steps):
                compiled, python = [twin.do(*step) for twin in twins]
                if compiled != python:
                    return f"poller: step {at} of {steps!r}\n  compiled: {compiled!r}\n  Python:   {python!r}"
        return ""


def run_rounds(arguments: argparse.Namespace) -> int:
    """Run rounds until the time or their number is used up, or one fails."""
    twins = Twins(arguments.modules)
    names = [arguments.only] if arguments.only else twins.names
    deadline = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")
    current = os.open(arguments.modules / "round", os.O_WRONLY)
    last = arguments.first + arguments.rounds if arguments.rounds else sys.maxsize
    rounds: Counter[str] = Counter()
    for at in range(arguments.first, last):
        if time.monotonic() >= deadline:
            break
        os.pwrite(current, at.to_bytes(8, "little"), 0)
        name = names[at % len(names)]
        if found := twins.difference(name, Random(f"{arguments.seed}:{at}")):
            (arguments.modules / "difference").touch()
            print(f"round {at}: {found[:4000]}", file=sys.stderr)
            print(repeat_command(arguments, at), file=sys.stderr)
            return FAILED
        rounds[name] += 1
    print(", ".join(f"{name} {count:,}" for name, count in rounds.items()))
    print(f"{rounds.total():,} rounds, 0 differences, 0 reports")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0, help="how long to run; 60 s without --rounds")
    parser.add_argument("--seed", type=int, default=None, help="of all rounds; a random one by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--rounds", type=int, default=0, help="how many rounds to run")
    parser.add_argument("--only", default="", choices=["", *FUNCTIONS, "poller"], help="compare this function alone")
    parser.add_argument("--without-sanitizers", action="store_true", help="compare the modules as they are installed")
    parser.add_argument("--modules", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.modules:
        return run_rounds(arguments)
    if not arguments.seconds and not arguments.rounds:
        arguments.seconds = 60.0
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    with tempfile.TemporaryDirectory() as made:
        folder, libraries = Path(made), []
        try:
            if arguments.without_sanitizers:
                for module in FOLDER.glob("_*.abi3.so"):
                    shutil.copy(module, folder)
                if not (folder / "_answers.abi3.so").exists():
                    raise BuildError("nothing is compiled in this installation; see hatch_build.py")
            else:
                libraries = build(folder)
        except BuildError as error:
            print(f"cannot run: {error}", file=sys.stderr)
            return CANNOT_RUN
        under = "no sanitizers" if arguments.without_sanitizers else "AddressSanitizer, UndefinedBehaviorSanitizer"
        print(f"seed {arguments.seed}, {under}", flush=True)
        return run_child(arguments, folder, libraries)


if __name__ == "__main__":
    sys.exit(main())
