"""Checks that every importer passes: it recognizes its files, samples give our statistics, bad files are refused."""

import gzip
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.summary import summarise
from benchhouse.catalog.entries import entries, plug
from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.runs.imports import choose, kinds_of, read
from benchhouse.runs.preparation import Where, prepare
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import ImportedReading
from benchhouse.schema.layout import WorkspaceFolder

DATA = Path(__file__).parent / "data"
FILES = {
    "ado": ["ado-2.3.0_operation.csv"],
    "aiperf": ["aiperf-0.13.0-published-format.jsonl", "aiperf-0.13.0-published-format.json"],
    "asv": ["asv-0.6.6.json"],
    "benchstat": ["go-1.19.8.txt"],
    "criterion": ["criterion-1.1-published-format.json"],
    "fio": ["fio-3.33.json"],
    "google-benchmark": ["google-benchmark-1.9.5.json"],
    "guidellm": ["guidellm-0.8.1-published-format.json"],
    "hyperfine": ["hyperfine-1.15.0.json"],
    "inference-perf": ["inference-perf-0.7.0-published-format.json"],
    "jmh": ["jmh-1.37-published-format.json"],
    "k6": ["k6-1.3-published-format.json"],
    "loadgen": ["loadgen-6.0.17-server_detail.txt", "loadgen-6.0.17-single-stream_detail.txt"],
    "locust": ["locust-2.47.0_stats.csv"],
    "perf_analyzer": ["perf_analyzer-2.60.json"],
    "pgbench": ["pgbench-15.18_log.10584", "pgbench-15.18_rate.10590"],
    "pytest-benchmark": ["pytest-benchmark-5.3.1.json"],
    "reframe": ["reframe-4.10.4.json"],
    "table": ["table.csv"],
    "transformers": ["transformers-5.22.0.json"],
    "vectordbbench": ["vectordbbench-2.0.0.json"],
    "vllm-bench": ["vllm-0.33.0-published-format.json"],
    "wrk": ["wrk-4.1.0.txt", "wrk2-4.0.0-published-format.txt"],
    "ycsb": ["ycsb-0.17-published-format.txt", "ycsb-0.17-raw-published-format.txt"],
}
EVERY = [(kind, name) for kind, names in FILES.items() for name in names]
MAPPED = {"table.csv": "table-mapping.yaml"}
every_file = check_table("kind, name", EVERY)


def mapping_of(name: str) -> Path | None:
    return DATA / MAPPED[name] if name in MAPPED else None


def test_every_importer_has_a_recorded_file():
    assert {entry.name for entry in entries("importers")} == FILES.keys()


@every_file
def test_only_its_own_importer_claims_a_file(kind, name):
    wanted = [] if name in MAPPED else [kind]
    assert kinds_of(DATA / name) == wanted


@every_file
def test_statistics_of_samples_equal_a_reference_computation(kind, name, tmp_path):
    folder = read(WorkspaceFolder(tmp_path), DATA / name, kind, mapping_of(name))
    reading = ImportedReading.model_validate_json(folder.reading.read_bytes())
    importer = plug("importers", kind)
    found = importer.read(ForeignFile(DATA / name, mapping_of(name), importer.parts(DATA / name)[1:]))
    assert found.tool == reading.tool and len(found.cases) == len(reading.cases)
    for case, kept in zip(found.cases, reading.cases, strict=True):
        for item, series in zip(case.samples, kept.series, strict=True):
            values = series.values(folder.samples)
            assert values == item.values
            ours = summarise(values)
            assert ours.mean == min(max(statistics.fmean(values), min(values)), max(values))
            for q, mine in ((0.5, ours.p50), (0.9, ours.p90), (0.99, ours.p99)):
                assert mine == reference_quantile(values, q)
                assert mine == pytest.approx(np.quantile(values, q), rel=1e-12, abs=1e-300)
            for figure in series.told:
                same = figure.value == pytest.approx(ours.stats().get(figure.stat), rel=1e-9)
                assert same or figure.because, f"{series.metric.name} {figure.stat} differs, and nothing says why"


def reference_quantile(values, q: float) -> float:
    """Hyndman and Fan's type 7, written down once more."""
    ordered, position = sorted(values), (len(values) - 1) * q
    low = int(position)
    below, above = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    return below + (above - below) * (position - low) if above != below else below


def refused(workspace: Path, path: Path, kind: str | None, mapping: Path | None = None) -> str:
    with pytest.raises(BenchError) as caught:
        read(WorkspaceFolder(workspace), path, kind, mapping)
    imports = workspace / ".bench" / "imports"
    assert not imports.exists() or not list(imports.iterdir()), "an import left files"
    return caught.value.message


@every_file
def test_a_truncated_file_is_refused(kind, name, tmp_path):
    content = (DATA / name).read_bytes()
    path = tmp_path / name
    cut = content[: len(content) * 2 // 3]
    path.write_bytes(cut[:-2] if cut.endswith(b"\n") else cut)  # between two lines, nobody could tell
    assert str(path) in refused(tmp_path, path, kind, mapping_of(name))


@every_file
def test_an_empty_file_is_refused(kind, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"")
    assert "empty" in refused(tmp_path, path, kind, mapping_of(name))
    if name not in MAPPED:
        assert "empty" in refused(tmp_path, path, None)


@every_file
def test_a_file_of_another_tool_is_refused(kind, name, tmp_path):
    path = tmp_path / name
    for other, names in FILES.items():
        if other != kind and names[0] not in MAPPED:
            path.write_bytes((DATA / names[0]).read_bytes())
            assert str(path) in refused(tmp_path, path, kind, mapping_of(name))


BOMBS = {
    "not finite": b"NaN",
    "huge": b"1e999",
    "a million digits": b"9" * 1_000_000,
    "text": b'"; rm -rf /"',
    "deep": b"[" * 200_000,
}


@check_table("bomb", BOMBS)
@every_file
def test_a_malicious_value_in_place_of_a_number_is_refused(kind, name, bomb, tmp_path):
    content = (DATA / name).read_bytes()
    poisoned = POISON[kind](content, BOMBS[bomb])
    assert poisoned != content
    path = tmp_path / name
    path.write_bytes(poisoned)
    message = refused(tmp_path, path, kind, mapping_of(name))
    assert str(path) in message and len(message) < 1000


def replace(*olds: bytes):
    def poison(content: bytes, bomb: bytes) -> bytes:
        old = next(old for old in olds if old in content)
        head, _, tail = content.partition(old)
        end = next(at for at, byte in enumerate(tail) if byte in b",\n}]\r ")
        return head + old + bomb + tail[end:]

    return poison


POISON = {
    "ado": replace(b",tiny,"),
    "aiperf": replace(b'"value": ', b'"avg": '),
    "asv": replace(b'"bench.Sort.time_sort": [['),
    "benchstat": replace(b"99723\t       "),
    "criterion": replace(b'"measured_values":['),
    "fio": replace(b'"iops" : '),
    "google-benchmark": replace(b'"real_time": '),
    "guidellm": replace(b'"time_to_first_token_ms": {\n     "successful": {\n      "mean": '),
    "hyperfine": replace(b'"times": [\n        '),
    "inference-perf": replace(b'"requests_per_sec": '),
    "jmh": replace(b'"score": '),
    "k6": replace(b'"value":'),
    "loadgen": replace(b'"result_mean_latency_ns", "value": '),
    "locust": replace(b"GET,/,"),
    "perf_analyzer": replace(b'"timestamp":'),
    "pgbench": replace(b"0 1 "),
    "pytest-benchmark": replace(b'"mean": '),
    "reframe": replace(b'"generic:default:speed": [\n              '),
    "table": replace(b"a,1,"),
    "transformers": replace(b'"loss": '),
    "vectordbbench": replace(b'"qps": '),
    "vllm-bench": replace(b'"ttfts": ['),
    "wrk": replace(b"Requests/sec:   "),
    "ycsb": replace(b"[READ], Max, ", b"[READ], MaxLatency(us), "),
}


FUTURE = {  # its format's version raised; where the file has none, what a newer one would call otherwise
    "ado": (b",experiment_id,", b",experiment,"),
    "aiperf": (b'"schema_version": "1.4"', b'"schema_version": "2.0"'),
    "asv": (b'"version": 2', b'"version": 3'),
    "benchstat": (b"Benchmark", b"Measured"),
    "criterion": (b'"benchmark-complete"', b'"benchmark-done"'),
    "fio": (b'"fio-3.33"', b'"fio-4.0"'),
    "google-benchmark": (b'"json_schema_version": 1', b'"json_schema_version": 2'),
    "guidellm": (b'"version": 2', b'"version": 9'),
    "hyperfine": (b'"results"', b'"commands"'),
    "inference-perf": (b'"successes"', b'"succeeded"'),
    "jmh": (b'"primaryMetric"', b'"primary"'),
    "k6": (b'"type":"Point"', b'"type":"Sample"'),
    "loadgen": (b'"result_', b'"outcome_'),
    "locust": (b"Request Count", b"Requests"),
    "perf_analyzer": (b'"response_timestamps"', b'"response_times"'),
    "pgbench": (b"\n", b" - -\n"),
    "pytest-benchmark": (b'"version": "5', b'"version": "99'),
    "reframe": (b'"data_version": "4.2"', b'"data_version": "5.0"'),
    "table": (b"latency_s", b"latency_seconds"),
    "transformers": (b'"log_history"', b'"history"'),
    "vectordbbench": (b'"metrics"', b'"measures"'),
    "vllm-bench": (b'"completed"', b'"succeeded"'),
    "wrk": (b"Requests/sec", b"Answers/sec"),
    "ycsb": (b"RunTime(ms)", b"RunTime(us)"),
}
FUTURE_LINES = {
    "aiperf-0.13.0-published-format.jsonl": (b'"metrics"', b'"measures"'),
    "ycsb-0.17-raw-published-format.txt": (b"\nREAD,", b"\nREAD,1,"),
}


@every_file
def test_a_file_of_a_future_version_is_refused(kind, name, tmp_path):
    content = (DATA / name).read_bytes()
    newer = content.replace(*FUTURE_LINES.get(name, FUTURE[kind]))
    assert newer != content
    path = tmp_path / name
    path.write_bytes(newer)
    assert str(path) in refused(tmp_path, path, kind, mapping_of(name))


NAMES = {  # where a name of somebody's stands
    "ado": b"serve",
    "aiperf": b"time_to_first_token",
    "asv": b"bench.Sort",
    "benchstat": b"Join/parts",
    "criterion": b"sort/1000",
    "fio": b"randread",
    "google-benchmark": b"sum_million/",
    "guidellm": b"Qwen/Qwen3-0.6B",
    "hyperfine": b"seq",
    "jmh": b"org.example.Sorting.sort",
    "k6": b"iteration_duration",
    "loadgen": b"Server",
    "locust": b"/missing",
    "perf_analyzer": b"concurrency",
    "pytest-benchmark": b"test_",
    "reframe": b"seq_test",
    "table": b"a,",
    "transformers": b"grad_norm",
    "vectordbbench": b"Milvus",
    "vllm-bench": b"Qwen/Qwen3-0.6B",
    "wrk": b"http://127.0.0.1:18734/missing",
    "ycsb": b"READ",
}
PLAIN_TEXT = ("benchstat", "wrk", "ycsb")
HOSTILE = {
    "a path": "../../../../tmp/out",
    "an absolute path": "/etc/passwd",
    "a NUL": "a\0b",
    "escape sequences": "\x1b[2J\x1b]0;title\x07",
    "line breaks": "a\r\nb: c\n- d",
    "references": "${HOME} $SHELL {x} !!python/object",
    "half a character": "\ud800",
    "right to left": "\u202egnp.exe",
    "long": "x" * 100_000,
}


@check_table("words", HOSTILE)
@check_table("kind", NAMES)
def test_a_hostile_name_is_refused_or_remains_text(kind, words, tmp_path):
    name = FILES[kind][0]
    bad = HOSTILE[words]
    is_json = not name.endswith(".csv") and kind not in PLAIN_TEXT
    bad_bytes = json.dumps(bad)[1:-1].encode() if is_json else bad.encode("utf-8", "surrogatepass")
    content = (DATA / name).read_bytes()
    assert NAMES[kind] in content
    root = tmp_path / kind / words
    root.mkdir(parents=True)
    path = root / name
    path.write_bytes(content.replace(NAMES[kind], bad_bytes))
    workspace = WorkspaceFolder(root / "ws")
    try:
        folder = read(workspace, path, kind, mapping_of(name))
    except BenchError as error:
        assert str(path) in error.message and len(error.message) < 1000
        assert not workspace.imports.exists() or not list(workspace.imports.iterdir())
        return
    reading = ImportedReading.model_validate_json(folder.reading.read_bytes())
    prepared = prepare(workspace, folder.scenario, Where())
    assert len(list(prepared.plan.trials())) == len(reading.cases)
    written = {item.relative_to(root).as_posix() for item in root.rglob("*") if item.is_file()}
    assert all(item == name or item.startswith("ws/.bench/imports/") for item in written)


GZIP_BOMB = gzip.compress((b" " * 100_000 + b"\n") * 400)


@every_file
def test_a_gzip_bomb_is_refused_by_every_importer(kind, name, tmp_path):
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress((DATA / name).read_bytes()) + GZIP_BOMB)
    assert str(path) in refused(tmp_path, path, kind, mapping_of(name))


def test_failed_and_skipped_benchmarks_of_asv_count_as_errors(tmp_path):
    path = tmp_path / "asv.json"
    path.write_bytes((DATA / "asv-0.6.6.json").read_bytes().replace(b"[42]", b"[NaN]"))
    cases = plug("importers", "asv").read(ForeignFile(path)).cases
    errors = {case.target["name"]: case.samples[0].values[0] for case in cases}
    assert errors == {"bench.time_broken": 1, "bench.Sort.time_sort": 0, "bench.track_size": 1}
    assert [len(case.samples) for case in cases] == [1, 2, 2, 2, 2, 1]


def test_a_torn_gzip_file_is_refused(tmp_path):
    path = tmp_path / "torn.json.gz"
    path.write_bytes(gzip.compress((DATA / "hyperfine-1.15.0.json").read_bytes())[:-20])
    assert "can't be read" in refused(tmp_path, path, "hyperfine")


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path):
    path = tmp_path / "result.json.gz"
    path.write_bytes(gzip.compress((DATA / "hyperfine-1.15.0.json").read_bytes()))
    assert choose(path, None)[0] == "hyperfine"
    assert len(plug("importers", "hyperfine").read(ForeignFile(path)).cases) == 2


def test_a_file_of_an_unknown_tool_and_a_folder_are_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "no importer knows" in refused(tmp_path, path, None)
    assert "is not a file" in refused(tmp_path, tmp_path, None)
