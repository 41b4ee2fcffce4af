"""Which local packages uv is told to build anew."""

import pytest

from benchhouse.schema.errors import BenchError
from benchhouse.schema.local_packages import SourceBuilds, rebuilt


def test_folders_are_built_anew_by_their_name(tmp_path):
    package, nameless = tmp_path / "my package", tmp_path / "old"
    for folder in (package, nameless):
        folder.mkdir()
    (package / "pyproject.toml").write_text('[project]\nname = "sorty"\n')
    (nameless / "setup.py").write_text("")
    wanted = ["--refresh-package=sorty"]
    for line in (str(package), f"{package}[fast]", f"sorty @ {package.as_uri()}", f"sorty[fast] @ {package.as_uri()}"):
        assert rebuilt(["numpy==1.0 \\", "    --hash=sha256:0a", line]) == wanted, line
    assert rebuilt([str(package), str(nameless)]) == ["--refresh"], "its name is known when it was built"
    assert rebuilt(["numpy", "torch @ https://host/torch.whl", f"{tmp_path}/none.whl", "# a/comment"]) == []


def test_source_packages_are_refused_unless_they_are_named_or_inside_the_workspace(tmp_path):
    inside, outside = tmp_path / "ws" / "mine", tmp_path / "other"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{folder.name}"\n')
    wheel = tmp_path / "x-1-py3-none-any.whl"
    wheel.touch()
    builds = SourceBuilds(("named_one",), tmp_path / "ws")
    allowed = [
        "numpy>=1",
        str(inside),
        f"{inside}[extra]",
        f"mine @ {inside.as_uri()}",
        str(wheel),
        "x @ https://host/x-1-py3-none-any.whl#sha256=00",
        "named.one @ git+https://host/named",
        "named-one @ https://host/named-one-1.tar.gz ; python_version > '3'",
    ]
    builds.check(allowed)
    refused = [
        str(outside),
        f"{outside}[extra]",
        f"mine @ {outside.as_uri()}",
        f"{tmp_path}/ws/../other",
        "git+https://host/other",
        "other @ git+file:///tmp/other",
        "https://host/other-1.tar.gz",
        "other @ https://host/x.tar.gz?file=x.whl",
        "-e .",
        " --find-links=x",
        "numpy\n--no-binary=:all:",
    ]
    for requirement in refused:
        with pytest.raises(BenchError):
            builds.check([requirement])
    SourceBuilds(("all",)).check(refused[:8])
    assert builds.options(allowed) == ["--only-binary=:all:", "--no-binary=mine", "--no-binary=named_one"]
    assert SourceBuilds().options(["other"]) == ["--only-binary=:all:"]
    assert SourceBuilds(("all",)).options(allowed) == []
