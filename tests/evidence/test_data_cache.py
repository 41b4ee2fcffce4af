"""Declared data: checked on the way in, kept between runs, safe when several ask at once."""

import errno
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tables import check_rows

from benchhouse.evidence.data_cache import DataCache, nearest_source
from benchhouse.schema.digests import digest as digest_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Data

CONTENT = b"one,two\n" * 1000


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.csv"
    path.write_bytes(CONTENT)
    return path


def declared(source, digest=None, name="table"):
    url = source if isinstance(source, str) else source.as_uri()
    return Data(name=name, source=url, sha256=digest or hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_once_and_outlives_its_source(tmp_path, source):
    cache = DataCache(tmp_path / "cache", "e", [declared(source)])
    path = cache.fetch("table")
    assert path.read_bytes() == CONTENT
    source.unlink()
    assert DataCache(tmp_path / "cache", "another", [declared(source)]).fetch("table") == path


def test_bundled_data_is_found_in_its_package(tmp_path, packages):
    (packages.folder / "bundle").mkdir()
    (packages.folder / "bundle" / "__init__.py").touch()
    (packages.folder / "bundle" / "table.csv").write_bytes(CONTENT)
    cache = DataCache(tmp_path / "data", "e", [declared("bundle:table.csv")])
    assert cache.fetch("table").read_bytes() == CONTENT


def test_a_wrong_digest_is_refused_and_everything_is_named(tmp_path, source):
    cache = DataCache(tmp_path / "cache", "e", [declared(source, "0" * 64)])
    with pytest.raises(BenchError) as found:
        cache.fetch("table")
    for word in ("'table'", source.as_uri(), "0" * 64, hashlib.sha256(CONTENT).hexdigest()):
        assert word in found.value.message
    assert list((tmp_path / "cache" / "data").iterdir()) == []


def test_what_is_not_declared_or_can_not_be_had_is_named(tmp_path):
    cache = DataCache(tmp_path / "cache", "e", [declared("file:///nowhere/at/all")])
    with pytest.raises(BenchError, match=r"declares no data 'tabel' \(declared: table\)"):
        cache.fetch("tabel")
    with pytest.raises(BenchError, match="can't copy table from file:///nowhere"):
        cache.fetch("table")


def _build(root, log):
    def make(path):
        with Path(log).open("a") as file:
            file.write("made\n")
        time.sleep(0.2)
        path.write_bytes(CONTENT)

    assert DataCache(Path(root), "e", []).build("key of it / all", make).read_bytes() == CONTENT


def test_four_processes_at_once_build_once(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_build, args=(tmp_path / "cache", tmp_path / "log")) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_killed_build_is_begun_again_and_leaves_no_parts(tmp_path):
    def hang(path):
        path.write_bytes(b"half")
        (tmp_path / "begun").touch()
        time.sleep(60)

    cache = DataCache(tmp_path / "cache", "e", [])
    pid = os.fork()
    if pid == 0:
        cache.build("key", hang)
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    path = cache.build("key", lambda part: part.write_bytes(b"whole"))
    assert path.read_bytes() == b"whole"
    assert sorted(item.name for item in path.parent.iterdir()) == [path.name, f"{path.name}.sha256"]


def test_a_damaged_entry_is_made_again(tmp_path):
    cache = DataCache(tmp_path / "cache", "e", [])
    path = cache.build("truth", lambda part: part.write_bytes(b"0123456789"))
    path.write_bytes(b"9876543210")
    made = []
    again = cache.build("truth", lambda part: (made.append(1), part.write_bytes(b"0123456789")))
    assert made and again.read_bytes() == b"0123456789"
    cache.build("truth", lambda part: made.append(2))
    assert made == [1]


FETCH = """
import sys
from pathlib import Path
from benchhouse.schema.experiment import Data
from benchhouse.evidence.data_cache import DataCache
root, url, digest = sys.argv[1:]
print(DataCache(Path(root), "e", [Data(name="table", source=url, sha256=digest)]).fetch("table"))
"""


def test_processes_that_fetch_at_once_download_once(tmp_path):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *args): ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, digest = f"http://127.0.0.1:{server.server_port}/table", hashlib.sha256(CONTENT).hexdigest()
    command = [sys.executable, "-c", FETCH, str(tmp_path), url, digest]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate(timeout=200)[0].strip() for process in started}
    server.shutdown()
    server.server_close()
    assert (len(paths), len(asked)) == (1, 1)
    assert Path(paths.pop()).read_bytes() == CONTENT


def test_data_is_filed_under_its_digest_and_can_not_be_written_by_mistake(tmp_path, source):
    path = DataCache(tmp_path, "e", [declared(source)]).fetch("table")
    assert path == tmp_path / "data" / hashlib.sha256(CONTENT).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o444
    path.chmod(0o644)
    path.write_bytes(b"another")
    assert DataCache(tmp_path, "e", [declared(source)]).fetch("table").read_bytes() == CONTENT


def test_a_cache_that_others_fill_need_only_be_read(tmp_path, source, monkeypatch):
    DataCache(tmp_path, "e", [declared(source)]).fetch("table")

    def refused(self, *args, **more):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    assert DataCache(tmp_path, "e", [declared(source)]).fetch("table").read_bytes() == CONTENT
    with pytest.raises(BenchError, match=r"can't write .*Read-only file system"):
        DataCache(tmp_path, "e", [declared(source, "0" * 64)]).fetch("table")


def test_keys_that_look_alike_are_kept_apart(tmp_path):
    cache = DataCache(tmp_path / "cache", "e", [])
    paths = {cache.build(key, lambda part: part.touch()) for key in ("a/b", "a_b", "a b", "../a", "x" * 300, "x" * 301)}
    assert len(paths) == 6
    assert all((tmp_path / "cache" / "built" / "e") == path.parent for path in paths)


def test_what_is_built_is_filed_under_its_experiment_and_its_key(tmp_path):
    cache = DataCache(tmp_path, "a/b c", [])
    key = "k y" * 30
    path = cache.build(key, lambda part: part.write_bytes(CONTENT))
    assert path == tmp_path / "built" / "a_b_c" / f"{'k_y' * 20}-{digest_of(key)[:12]}"
    assert path.with_name(f"{path.name}.sha256").read_text() == hashlib.sha256(CONTENT).hexdigest()
    assert len(list((tmp_path / "locks").iterdir())) == 1


def test_a_folder_may_be_built_and_is_not_built_again(tmp_path):
    cache, made = DataCache(tmp_path, "e", []), []

    def make(part):
        made.append(part)
        part.mkdir()
        (part / "x").touch()

    path = cache.build("key", make)
    assert cache.build("key", make) == path and (path / "x").exists()
    assert len(made) == 1 and [item.name for item in path.parent.iterdir()] == [path.name]


def test_data_is_on_disk_before_it_has_its_name(tmp_path, source, disk):
    cache = DataCache(tmp_path / "cache", "e", [declared(source)])
    name = cache.fetch("table").name
    part = f"cache/data/.part-{name}/{name}"
    assert disk == [f"sync {part}", f"rename {part} cache/data/{name}", "sync cache/data"]
    built = cache.build("key", lambda part: part.touch()).relative_to(tmp_path).as_posix()
    assert disk[3].startswith("sync cache/built/e/.part-") and disk[4].endswith(f" {built}")
    assert disk[5] == "sync cache/built/e"
    assert disk[6].startswith(f"sync cache/built/e/.{Path(built).name}.sha256."), "and so is its digest"


def test_a_derived_folder_is_on_disk_with_all_that_it_holds_before_it_has_its_name(tmp_path, source, disk):
    def make(part):
        (part / "inner").mkdir(parents=True)
        (part / "inner" / "file").write_text("x")
        (part / "link").symlink_to("inner/file")

    DataCache(tmp_path / "cache", "e", []).build("key", make)
    *before, rename, folder = disk
    assert rename.startswith("rename") and folder == "sync cache/built/e"
    part = rename.split()[1]
    assert sorted(before) == [f"sync {part}", f"sync {part}/inner", f"sync {part}/inner/file"]


def test_a_file_whose_name_has_a_space_is_copied(tmp_path):
    (tmp_path / "a b.csv").write_bytes(CONTENT)
    cache = DataCache(tmp_path / "cache", "e", [declared(tmp_path / "a b.csv")])
    assert cache.fetch("table").read_bytes() == CONTENT


def test_npms_own_setting_for_another_registry_applies():
    rows = [
        ("https://registry.npmjs.org/a/-/a.tgz", {}, "https://registry.npmjs.org/a/-/a.tgz"),
        ("https://registry.npmjs.org/a", {"npm_config_registry": "http://mine/"}, "http://mine/a"),
        ("https://registry.npmjs.org/a", {"NPM_CONFIG_REGISTRY": "http://mine"}, "http://mine/a"),
        ("https://host/https://registry.npmjs.org/a", {"npm_config_registry": "http://mine"},
         "https://host/https://registry.npmjs.org/a"),
    ]  # fmt: skip

    def check(url, environ, nearest):
        assert nearest_source(url, environ) == nearest

    check_rows(check, rows)


def test_a_download_that_fails_is_told_and_leaves_nothing(tmp_path):
    cache = DataCache(tmp_path, "e", [declared("http://127.0.0.1:1/table")])
    with pytest.raises(BenchError, match="can't download table from"):
        cache.fetch("table")
    assert list((tmp_path / "data").iterdir()) == []


def test_another_error_than_a_cache_of_others_is_raised_as_it_is(tmp_path, source, monkeypatch):
    DataCache(tmp_path, "e", [declared(source)]).fetch("table")

    def refused(self, *args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(OSError, match="No space left"):
        DataCache(tmp_path, "e", [declared(source)]).fetch("table")


def test_an_experiment_gets_its_data_and_a_wrong_digest_fails_its_trial(lab, tmp_path):
    source = tmp_path / "source.csv"
    source.write_bytes(CONTENT)
    good = hashlib.sha256(CONTENT).hexdigest()
    code = f"""
from benchhouse import Context, Data, Metric, experiment

@experiment("reader", version="1", metrics=[Metric(name="size")], data=[
    Data(name="good", source="{source.as_uri()}", sha256="{good}"),
    Data(name="bad", source="{source.as_uri()}", sha256="{"1" * 64}"),
])
def reader(which: str, ctx: Context):
    ctx.emit("size", ctx.cache.fetch(which).stat().st_size)
"""
    lab.install("reader", "1", code, "[benchhouse.experiments]\nreader = reader:reader\n")
    lab.bench("run", lab.scenario("reader", workload={"which": ["good", "bad"]}, parallel=2), code=1)
    trials = lab.by("which")
    assert trials["good"].outcome == "succeeded"
    assert trials["bad"].outcome == "error"
    assert "'bad'" in trials["bad"].meta["failure"]["message"]
    shown = json.loads(lab.bench("show", "reader", "--json").stdout)
    assert "sha256" in json.dumps(shown)
