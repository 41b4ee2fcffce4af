import os
from pathlib import Path

import pytest

from benchhouse.evidence.folder import seal
from benchhouse.processes.owned_names import temporary_name
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.trial import ExperimentRef, TrialSpec

FILES = {"a.txt": "x", "empty.txt": "", "sub/b.txt": "yy"}


@pytest.fixture
def spec(tmp_path) -> TrialSpec:
    ref = ExperimentRef(name="e", version="1", object="x:y", distribution="d", distribution_version="2")
    return TrialSpec(
        trial_id="t1", run_id="r1", scenario="demo", plan_digest="p", instance_digest="i", benchmark_case_id="c",
        workload_spec_digest="w", experiment=ref, component="custom", service="", target={}, parameters={"k": 3},
        repetition=1, seed=7, resources=Resources(), limits=Limits(), executor="local", runtime=RuntimeSettings(),
        cache="/cache", final=str(tmp_path / "demo" / "t1"),
    )  # fmt: skip


@pytest.fixture
def partial(tmp_path) -> TrialFolder:
    """A folder that is yet to be sealed, with a few small files."""
    for name, text in FILES.items():
        path = tmp_path / "demo" / ".partial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return TrialFolder(tmp_path / "demo" / ".partial")


@pytest.fixture
def sealed(partial, spec) -> TrialFolder:
    return TrialFolder(seal(partial, spec, "succeeded"))


@pytest.fixture
def disk(monkeypatch, tmp_path) -> list[str]:
    """What reaches the disk, in this order: `sync NAME` and `rename FROM TO`; of a temporary name, OURS is us."""
    ours = temporary_name("x").removeprefix(".x.").removesuffix(".tmp")
    events: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def shown(path: str | Path) -> str:
        name = Path(path).resolve().relative_to(tmp_path.resolve()).as_posix()
        return name.replace(f".{ours}.", ".OURS.")

    def fsync(handle: int) -> None:
        events.append(f"sync {shown(os.readlink(f'/proc/self/fd/{handle}'))}")
        real["fsync"](handle)

    def move(name: str):
        def call(source: str | Path, target: str | Path) -> None:
            events.append(f"rename {shown(source)} {shown(target)}")
            real[name](source, target)

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", move("rename"))
    monkeypatch.setattr(os, "replace", move("replace"))
    return events


@pytest.fixture
def open_files():
    """The test leaves no file open."""
    before = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == before
