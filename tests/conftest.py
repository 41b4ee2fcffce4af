"""What all tests share: the command line run in this process, and a cache of their own."""

import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS / "results"), str(TESTS / "warehouse")]
pytest_plugins = ["costs", "golden"]

settings.register_profile("shared machine", deadline=None)  # a neighbour's load is not a failure
settings.load_profile("shared machine")


SHARED_SERVERS = {
    "triton": r"drivers/test_triton(_grpc|_llm|_load)?\.py|experiments/serving/test_(infer|replicas)\.py",
    "llama": r"experiments/serving/test_real_server\.py|services/test_llm_server\.py",
    "postgres": r"(drivers/test_(postgres|pgbench)|experiments/storage/test_(postgres\w*|pgbench))\.py",
    "pgvector": r"drivers/test_pgvector\.py|experiments/vector/test_servers\.py|TestPgVector",
    "weaviate": r"drivers/test_weaviate\.py|TestWeaviateAgainstAFake",
    "milvus": r"drivers/test_milvus\.py|TestMilvus\w+",
    "chroma": r"TestChroma\w+",
    "qdrant": r"drivers/test_qdrant\.py|TestQdrant\w+",
    "seaweedfs": r"experiments/(storage/test_s3(_run)?|training/test_(checkpoint|dataloader))\.py",
}
"""Servers and libraries that take long to start or to import, and the files and classes whose tests use one of them."""


def together(nodeid: str) -> str:
    """What a test runs in one process with: the tests of its cluster, of its vector database, or of its file."""
    path, _, test = nodeid.partition("::")
    where = path if "test_vector_drivers" not in path else f"/{test.partition('::')[0]}"
    for server, places in SHARED_SERVERS.items():
        if re.search(rf"/({places})$", where):
            return server
    clusters = r"test_(?:(ray|dask|spark)|(kubernetes)\w*)\.py::|test_conformance\.py::.*\[(\w+)\]"
    found = re.search(rf"{clusters}|test_vector_drivers\.py::(\w+)", nodeid)
    return found[found.lastindex or 0] if found else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """A file's tests run in one process, and so do all tests of a cluster: what they need is started once.

    In the order of the files: clusters take long, and would come last by their number of tests. By node id: with this
    pytest the groups of `--dist loadgroup` come to nothing.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByCluster(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    config.option.loadscopereorder = False
    return ByCluster(config, log)


STARTS = frozenset(
    [
        "lab",
        "real_llm",
        "real_vllm",
        "triton",
        "second_triton",
        "seaweedfs",
        "chroma",
        "milvus",
        "postgres_server",
        "own_postgres",
        "dask_cluster",
        "tls_cluster",
        "ray_cluster",
        "spark_cluster",
        "cluster",
        "kubernetes_cluster",
        "apptainer",
        "registry",
    ]
)
"""Fixtures that start `bench` itself, a server or a cluster."""

QUICK_FOLDERS = frozenset(["analysis", "api", "catalog", "claims", "documents", "plan", "results", "schema", "sites"])
"""Folders whose tests run in `make quick`, except those with one of these marks."""
NOT_QUICK = frozenset(["starts", "slow", "serial", "clients", "browser"])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not read the folders that hold no quick test."""
    is_skipped = collection_path.parent == TESTS and collection_path.name not in QUICK_FOLDERS
    return True if is_skipped and config.option.markexpr == "quick" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    """All that is collected stays: to look for garbage among millions of objects takes half a second each time, which
    loads and timed commands do before they begin."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """What libraries look for at the end of the process is to be found as gone."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start processes, by their fixtures, and tests that are quick, by their folder and other marks.

    Quick tests come last: they use the cores while the last clusters and servers are waited for.
    """
    _put_off_kubernetes(items)
    for item in items:
        if STARTS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.starts)
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in QUICK_FOLDERS and not NOT_QUICK.intersection(mark.name for mark in item.iter_markers()):
            item.add_marker(pytest.mark.quick)
    items.sort(key=lambda item: item.get_closest_marker("quick") is not None)


def _put_off_kubernetes(items: list[pytest.Item]) -> None:
    """On a fresh machine it is still being built while the first tests run; whoever comes too early waits."""
    late = [item for item in items if together(item.nodeid) == "kubernetes"]
    others = [item for item in items if together(item.nodeid) != "kubernetes"]
    at = next((at for at, item in enumerate(others) if item.nodeid.startswith("tests/executors/")), len(others))
    items[:] = others[:at] + late + others[at:]
    for item in late:
        item.add_marker(pytest.mark.timeout(900))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """A cluster ends with the last of its tests: even an idle one takes its share of a core from all that follow."""
    ended = yield
    group = together(item.nodeid)
    if group in ("ray", "dask", "kubernetes") and (nextitem is None or together(nextitem.nodeid) != group):
        for made in item.session._fixturemanager.getfixturedefs(f"{group}_cluster", item) or ():
            made.finish(item._request)
    return ended


@dataclass(frozen=True)
class Completed:
    """How one call of `bench` ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> None:
    """No setting of the person who runs the tests reaches them, and nothing of theirs reaches that person's home."""
    for name in [name for name in os.environ if name.startswith("BENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BENCH_CACHE_DIR", str(shared_cache))
    monkeypatch.setenv("KUBECONFIG", str(shared_cache / "no-kubeconfig"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Completed]:
    """`bench(*args, cwd=...)` as a user types it, in this process; the folder is `tmp_path` unless given."""
    from benchhouse.cli import main

    def call(*args: object, cwd: Path | None = None) -> Completed:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["bench", *map(str, args)])
            patch.chdir(cwd or tmp_path)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        return Completed(int(ended.value.code or 0), out, err)

    return call


@dataclass
class FakePackages:
    """A folder of packages that look installed: a module and its dist-info, without pip."""

    folder: Path

    def add(self, name: str, module: str, code: str, *lines: str, version: str = "1.0", group: str = "experiments"):
        """Write `module`.py and an entry-point line each of `lines`, such as `sort = module:function`."""
        (self.folder / f"{module}.py").write_text(code)
        info = self.folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nA fake.\n")
        (info / "entry_points.txt").write_text(f"[benchhouse.{group}]\n" + "\n".join(lines) + "\n")
        self.forget()

    def forget(self) -> None:
        """Look again at what is installed, as a new process would."""
        from benchhouse.catalog.entries import installed

        installed.cache_clear()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePackages]:
    """Fake packages that this process, and those it starts, see as installed; with a cache of their own."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("BENCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)
    fake = FakePackages(folder)
    yield fake
    monkeypatch.undo()
    fake.forget()


@pytest.fixture
def leave_behind() -> Callable[..., Path]:
    """`leave_behind(folder, name)`: an unfinished file, as a process that was killed while it wrote `name` left it."""
    from benchhouse.processes.owned_names import temporary_name

    def leave(folder: Path, name: str = "x.json") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / re.sub(r"-s\d+-", "-s1-", temporary_name(name))  # nobody runs since the first tick of the boot
        path.write_bytes(b"half")
        return path

    return leave


@pytest.fixture(scope="session")
def sweep():
    """Made-up report data."""
    import made_up

    return made_up.sweep()


@pytest.fixture
def collected(tmp_path: Path):
    """A workspace with run run-a: two targets, two values of ef, five repetitions, a warm-up and one failure."""
    from trial_maker import make_run, make_trial

    from benchhouse.schema.layout import WorkspaceFolder
    from benchhouse.warehouse.ingest import collect

    workspace = WorkspaceFolder(tmp_path / "ws")
    folders = [*make_run(workspace, "run-a", 5), make_trial(workspace, "run-a", 9, outcome="error", minute=5)]
    collect(workspace, "run-a", folders)
    return workspace


from laboratory import lab as lab  # noqa: E402 - the real `bench` in a subprocess, for runs that are killed

# Here and not where they are used: each module that imports a session's fixture has one of its own.
from services.chroma import chroma as chroma  # noqa: E402
from services.dask_cluster import dask_cluster as dask_cluster  # noqa: E402
from services.fake_weaviate import fake_weaviate as fake_weaviate  # noqa: E402
from services.kubernetes_cluster import kubernetes as kubernetes  # noqa: E402
from services.kubernetes_cluster import kubernetes_cluster as kubernetes_cluster  # noqa: E402
from services.llm import real_llm as real_llm  # noqa: E402
from services.llm import real_vllm as real_vllm  # noqa: E402
from services.load_processes import kill_shards as kill_shards  # noqa: E402
from services.milvus import milvus as milvus  # noqa: E402
from services.postgres import own_postgres as own_postgres  # noqa: E402
from services.postgres import postgres_server as postgres_server  # noqa: E402
from services.ray_cluster import ray_cluster as ray_cluster  # noqa: E402
from services.seaweedfs import seaweedfs as seaweedfs  # noqa: E402
from services.triton import second_triton as second_triton  # noqa: E402
from services.triton import triton as triton  # noqa: E402
