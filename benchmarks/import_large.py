"""A large k6 log: memory and CPU of `bench import` against reading and parsing the same file with pyarrow, and orjson.

    python benchmarks/import_large.py [--json]         # 100 MB, three alternating rounds
    python benchmarks/import_large.py --megabytes 1000 --rounds 5

Each is a process of its own, and the import is held against the faster of the two others (orjson where it is
installed). CPU is user and system time with children, memory the largest resident set of one of them. The import does
more than parse: it digests, copies, computes statistics, seals and collects.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PYARROW = """
import sys
import pyarrow as pa
from pyarrow import json
rest, rows = b"", 0
options = json.ReadOptions(use_threads=False, block_size=16 << 20)
with open(sys.argv[1], "rb") as file:
    while data := file.read(8 << 20):
        data = rest + data
        cut = data.rfind(b"\\n") + 1
        rest = data[cut:]
        rows += json.read_json(pa.BufferReader(data[:cut]), options).num_rows
print(rows)
"""
ORJSON = """
import sys, orjson
rows = 0
with open(sys.argv[1], "rb") as file:
    for line in file:
        orjson.loads(line)
        rows += 1
print(rows)
"""
METRICS = (
    ("http_reqs", "counter", "default"), ("http_req_duration", "trend", "time"), ("http_req_blocked", "trend", "time"),
    ("http_req_connecting", "trend", "time"), ("http_req_tls_handshaking", "trend", "time"),
    ("http_req_sending", "trend", "time"), ("http_req_waiting", "trend", "time"),
    ("http_req_receiving", "trend", "time"), ("http_req_failed", "rate", "default"),
)  # fmt: skip
MOST_MB, MOST_RATIO = 300, 1.5


def write_log(path: Path, megabytes: int) -> None:
    random.seed(1)
    tags = {
        "expected_response": "true", "group": "", "method": "GET", "name": "http://127.0.0.1:8080/items/42?page=7",
        "proto": "HTTP/1.1", "scenario": "default", "status": "200", "tls_version": "",
        "url": "http://127.0.0.1:8080/items/42?page=7",
    }  # fmt: skip
    tail = json.dumps(tags, separators=(",", ":"))
    with path.open("w") as file:
        for name, kind, contains in METRICS:
            data: dict[str, object] = {
                "name": name,
                "type": kind,
                "contains": contains,
                "thresholds": [],
                "submetrics": None,
            }
            file.write(json.dumps({"type": "Metric", "data": data, "metric": name}) + "\n")
        written = second = 0
        while written < megabytes * 1_000_000:
            second += 1
            stamp = f"2026-11-02T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}.123456789+01:00"
            lines = []
            for _ in range(100):
                for name, kind, _contains in METRICS:
                    value = random.expovariate(0.1) if kind == "trend" else int(kind == "counter")
                    lines.append(
                        f'{{"metric":"{name}","type":"Point","data":{{"time":"{stamp}","value":{value},"tags":{tail}}}}}\n'
                    )
            text = "".join(lines)
            written += len(text)
            file.write(text)


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and the largest resident set in 10^6 bytes."""
    pid = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(pid.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{command[:3]} failed: {pid.stderr.read().decode()[-2000:] if pid.stderr else ''}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "k6.json"
        write_log(log, given.megabytes)
        size = f"{log.stat().st_size / 1e6:.0f} MB, {given.rounds} alternating rounds"
        ways = {
            "pyarrow": [sys.executable, "-c", PYARROW, str(log)],
            "orjson": [sys.executable, "-c", ORJSON, str(log)],
        }
        if subprocess.run([sys.executable, "-c", "import orjson"], stderr=subprocess.DEVNULL, check=False).returncode:
            del ways["orjson"]
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ways, "import")}
        for number in range(given.rounds):
            for name, command in ways.items():
                seen[name].append(measure(command, Path(folder)))
            workspace = Path(folder) / f"ws{number}"
            workspace.mkdir()
            seen["import"].append(
                measure([sys.executable, "-m", "benchhouse", "import", str(log), "--json"], workspace)
            )
        cpu_s = {name: min(cpu for cpu, _ in rounds) for name, rounds in seen.items()}
        memory_mb = {name: max(memory for _, memory in rounds) for name, rounds in seen.items()}
        fastest = min(ways, key=lambda name: cpu_s[name])
        ratio, memory = cpu_s["import"] / cpu_s[fastest], memory_mb["import"]
        good = ratio <= MOST_RATIO and memory <= MOST_MB
        if given.json:
            print(json.dumps({"cpu_s": cpu_s, "memory_mb": memory_mb, "beside": fastest, "ratio": ratio, "met": good}))
            return 0 if good else 1
        print(size)
        for name, cpu in cpu_s.items():
            print(f"{name:8} {cpu:7.2f} CPU s (least of the rounds), {memory_mb[name]:6.0f} MB (most)")
        print(f"import / {fastest}: {ratio:.2f} (at most {MOST_RATIO}), {memory:.0f} MB (at most {MOST_MB}): "
              f"{'reached' if good else 'NOT reached'}")  # fmt: skip
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
