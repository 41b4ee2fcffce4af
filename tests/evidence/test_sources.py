"""Sources are fetched once, checked, and laid out below one folder."""

import bz2
import gzip
import hashlib
import io
import lzma
import random
import resource
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchhouse.evidence.data_cache import DataCache
from benchhouse.evidence.sources import stage
from benchhouse.schema.errors import BenchError
from benchhouse.schema.sources import DataSource


@pytest.fixture
def web():
    """Answers every path with its name; `asked` are those that were asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = self.path.encode()
            self.send_response(404 if "missing" in self.path else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def lay_out(tmp_path):
    cache = DataCache(tmp_path / "cache", "command", [])

    def call(*sources, folder="data"):
        facts = stage([DataSource(**source) for source in sources], tmp_path / folder, cache.build)
        return tmp_path / folder, facts

    return call


def test_a_file_is_fetched_once_and_checked(web, lay_out):
    url, asked = web
    md5 = hashlib.md5(b"/train").hexdigest()
    for folder in ("first", "second"):
        place, facts = lay_out({"url": f"{url}/train", "path": "in/train.txt", "md5": md5}, folder=folder)
        assert (place / "in" / "train.txt").read_bytes() == b"/train"
        assert facts[0]["sha256"] == hashlib.sha256(b"/train").hexdigest()
    assert asked == ["/train"]


def test_what_is_not_the_file_that_was_meant_is_never_laid_out(web, lay_out, tmp_path):
    url, _ = web
    for digests in ({"md5": "0" * 32}, {"sha256": "0" * 64}):
        with pytest.raises(BenchError, match="wrong data"):
            lay_out({"url": f"{url}/train", "path": "x", **digests})
    with pytest.raises(BenchError, match=r"can't fetch .*404"):
        lay_out({"url": f"{url}/missing", "path": "x"})
    with pytest.raises(BenchError, match="can't copy"):
        lay_out({"file": str(tmp_path / "none"), "path": "x"})
    assert not (tmp_path / "data").exists() and not list(tmp_path.glob("cache/built/*/source-*"))


def test_folders_of_this_machine_share_a_place_and_a_change_is_seen(lay_out, tmp_path):
    for name in ("one", "two"):
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / f"{name}.txt").write_text(name)
    sources = [{"file": str(tmp_path / "own" / name), "path": "both"} for name in ("one", "two")]
    place, before = lay_out(*sources)
    assert sorted(path.name for path in (place / "both").iterdir()) == ["one.txt", "two.txt"]
    (tmp_path / "own" / "one" / "one.txt").write_text("changed")
    place, after = lay_out(*sources)
    assert (place / "both" / "one.txt").read_text() == "changed"
    assert before[0]["sha256"] != after[0]["sha256"] and before[1] == after[1]


def test_an_archive_is_unpacked_and_nothing_leaves_its_folder(lay_out, tmp_path):
    for name, inside in (("good.tar", "src/run.sh"), ("evil.tar", "../../outside")):
        with tarfile.open(tmp_path / name, "w") as tar:
            member = tarfile.TarInfo(inside)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"hi"))
    place, _ = lay_out({"file": str(tmp_path / "good.tar"), "path": "scripts", "unpack": True})
    assert (place / "scripts" / "src" / "run.sh").read_text() == "hi"
    with pytest.raises(BenchError, match="can't unpack"):
        lay_out({"file": str(tmp_path / "evil.tar"), "path": "scripts", "unpack": True})


def test_an_archive_with_links_or_special_files_or_too_many_files_is_refused(lay_out, monkeypatch, tmp_path):
    monkeypatch.setattr("benchhouse.evidence.sources._MOST_ENTRIES", 3)
    kinds = {"symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE, "disk": tarfile.BLKTYPE}
    for name, kind in kinds.items():
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "inside"
            tar.addfile(member)
        with pytest.raises(BenchError, match=f"can't unpack .*'{name}' is neither a file nor a folder"):
            lay_out({"file": str(tmp_path / f"{name}.tar"), "path": name, "unpack": True})
    with tarfile.open(tmp_path / "many.tar", "w") as tar:
        for number in range(4):
            tar.addfile(tarfile.TarInfo(str(number)))
    with pytest.raises(BenchError, match="more than 3 files and folders"):
        lay_out({"file": str(tmp_path / "many.tar"), "path": "many", "unpack": True})


def test_an_archive_that_holds_far_more_than_its_size_or_is_torn_is_refused(lay_out, monkeypatch, tmp_path):
    monkeypatch.setattr("benchhouse.evidence.sources._FREE_BYTES", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("zeros")
        member.size = 8 << 20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(BenchError, match=r"can't unpack .*: it holds more than 2,\d+,\d+ bytes"):
        lay_out({"file": str(path), "path": "scripts", "unpack": True})
    with tarfile.open(path, "w:gz") as tar:
        member.size = 100_000
        tar.addfile(member, io.BytesIO(random.Random(1).randbytes(member.size)))
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(BenchError, match=r"can't unpack .*end"):
        lay_out({"file": str(path), "path": "scripts", "unpack": True})


def header_bomb(kind: bytes, size: int) -> bytes:
    """A tar archive whose first header announces a name or attributes of that size, all spaces."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT) + b" " * (size + -size % 512)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_a_header_that_would_fill_the_memory_is_refused(lay_out, tmp_path, pack):
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
        path = tmp_path / "bomb.tar"
        path.write_bytes(pack(header_bomb(kind, 2 << 20)))
        with pytest.raises(BenchError, match="a header has"):
            lay_out({"file": str(path), "path": "scripts", "unpack": True})


def test_an_archive_that_is_no_tar_or_of_other_sizes_than_its_bytes_is_refused(lay_out, tmp_path):
    packed = tmp_path / "bomb.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as content:
        content.writestr("zeros", bytes(8 << 20))
    negative, sparse = tmp_path / "negative.tar", tmp_path / "sparse.tar"
    member = tarfile.TarInfo("x")
    member.size = -512
    negative.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"77777777777\0"  # 8 GiB of holes
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    sparse.write_bytes(header + bytes(1024))
    for path in (packed, negative, sparse):
        with pytest.raises(BenchError, match="can't unpack"):
            lay_out({"file": str(path), "path": "scripts", "unpack": True})


def test_a_source_is_as_large_as_it_may_be_and_no_larger(web, lay_out, tmp_path):
    url, _ = web
    assert lay_out({"url": f"{url}/train", "path": "x", "max_size": 6})[0].is_dir()
    with pytest.raises(BenchError, match="more than 3 bytes"):
        lay_out({"url": f"{url}/tra", "path": "x", "max_size": 3})
    path = tmp_path / "good.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("x")
        member.size = 10_000
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(BenchError, match="more than 9,000 bytes"):
        lay_out({"file": str(path), "path": "x", "unpack": True, "max_size": 9000})
    assert not [path for path in (tmp_path / "cache").rglob("*") if ".part" in path.name]


def test_a_disk_that_is_full_leaves_nothing_half_made(web, lay_out, tmp_path):
    url, _ = web
    archive = tmp_path / "good.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("small", "large"):
            member = tarfile.TarInfo(name)
            member.size = 10 if name == "small" else 10_000
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for source, most in (({"url": f"{url}/{'x' * 2000}"}, 1000), ({"file": str(archive), "unpack": True}, 9000)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            with pytest.raises(BenchError, match=r"File too large"):
                lay_out(source | {"path": "x"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in (tmp_path / "cache" / "built").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://host/x"},
        {"url": "http://host/x", "file": "x"},
        {},
        *({"file": "x", "path": p} for p in ("../x", "/")),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError):
        DataSource(**({"path": "x"} | wrong))


def test_an_object_and_all_below_a_prefix_are_fetched_from_a_bucket(seaweedfs, lay_out, monkeypatch):
    for name, value in (seaweedfs.environment | {"AWS_ENDPOINT_URL": seaweedfs.url}).items():
        monkeypatch.setenv(name, value)
    bucket = seaweedfs.bucket("sources")
    for key, content in (("set/a.rec", b"one"), ("set/deep/b.rec", b"two"), ("settled", b"beside")):
        bucket.put(key, content, hashlib.sha256(content).hexdigest())
    md5 = hashlib.md5(b"one").hexdigest()
    place, facts = lay_out(
        {"url": "s3://sources/set/a.rec", "path": "a.rec", "md5": md5}, {"url": "s3://sources/set", "path": "all"}
    )
    assert (place / "a.rec").read_bytes() == b"one" and facts[0]["sha256"] == hashlib.sha256(b"one").hexdigest()
    assert (place / "all" / "a.rec").read_bytes() == b"one" and (place / "all/deep/b.rec").read_bytes() == b"two"
    assert sorted(item.name for item in (place / "all").iterdir()) == ["a.rec", "deep"]
    with pytest.raises(BenchError, match="wrong data"):
        lay_out({"url": "s3://sources/set/a.rec", "path": "b", "md5": "0" * 32}, folder="second")
    with pytest.raises(BenchError, match="no such object, and none below it"):
        lay_out({"url": "s3://sources/nothing", "path": "c"}, folder="third")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BenchError, match="can't fetch s3://sources/settled: SignatureDoesNotMatch"):
        lay_out({"url": "s3://sources/settled", "path": "d"}, folder="fourth")
