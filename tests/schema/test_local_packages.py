"""Which local packages uv is told to build anew."""

from benchhouse.schema.local_packages import rebuilt


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
