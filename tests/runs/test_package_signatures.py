"""Signatures of packages: by the people who may register, of exactly these bytes; of wheels, of what is installed, and
of commits. Real ssh-keygen, git and installer."""

import json
import shutil
from pathlib import Path

import pytest
from signed_packages import CODE, commit, git, install, make_keys, make_wheel
from tables import check_rows

from benchhouse.api.workspace import Workspace
from benchhouse.catalog.distribution_files import differences
from benchhouse.runs.commits import changed_since_commit
from benchhouse.runs.package_signatures import of_folder
from benchhouse.runs.signed_files import signed_text
from benchhouse.runs.ssh_signatures import sign
from benchhouse.runs.trust_file import login, read_trusted
from benchhouse.schema.errors import BenchError
from benchhouse.schema.packages import SignedPackage

LOST = {"until": "2020-01-01", "why": "the laptop was lost"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder, "ada", "bob", "cy", "eve")
    return folder


@pytest.fixture
def trust(tmp_path, keys):
    """Writes trusted.yaml: ada registers, cy is an admin, bob may run; eve is nobody."""

    def write(signatures="required", **more):
        public = {name: (keys / f"{name}.pub").read_text().strip() for name in ("ada", "bob", "cy")}
        people = {
            "ada": {"registers": True, "keys": [public["ada"]]},
            "bob": {"keys": [public["bob"]]},
            "cy": {"role": "admin", "keys": [public["cy"]]},
        }
        file = {"people": people, "packages": {"signatures": signatures}} | more
        (tmp_path / "trusted.yaml").write_text(json.dumps(file))
        return public

    write()
    return write


@pytest.fixture
def team(tmp_path, packages, trust, bench):
    """A workspace with a scenario of zip-time, which is installed from a wheel."""
    install(make_wheel(tmp_path / "dist"), packages.folder)
    packages.forget()
    (tmp_path / "z.yaml").write_text("scenario: z\nexperiment: zip.time\n")
    return tmp_path


def the_signature(team: Path) -> Path:
    (path,) = (team / "signatures").iterdir()
    return path


def test_what_is_not_signed_does_not_run_and_what_somebody_signed_who_may_register_does(team, bench, keys, trust):
    refused = bench("run", "z.yaml")
    assert refused.code == 5 and "zip-time 1.0: it is not signed" in refused.err
    assert "bench packages sign zip-time" in refused.err and not (team / ".bench" / "runs").exists()
    wheel = team / "dist" / "zip_time-1.0-py3-none-any.whl"
    not_bob = bench("packages", "sign", wheel, "--key", keys / "bob")
    assert not_bob.code == 5 and "bob may not register packages" in not_bob.err
    assert "is nobody's key" in bench("packages", "sign", wheel, "--key", keys / "eve").err
    signed = bench("packages", "sign", wheel, "--key", keys / "ada", "--json")
    assert Path(json.loads(signed.out)["file"]) == the_signature(team)
    assert bench("packages", "verify", wheel).code == 0
    assert bench("run", "z.yaml").code == 0
    the_signature(team).unlink()
    for words in (("run", "z.yaml", "--new"), ("submit", "z.yaml", "--new"), ("run", "--resume", "@last")):
        assert bench(*words, *(["--rerun-failed"] if "--resume" in words else [])).code == 5, words
    trust("advised")
    warned = bench("run", "z.yaml", "--new")
    assert warned.code == 0 and "warning: packages that trusted.yaml does not let run" in warned.err
    trust()
    assert bench("packages", "sign", "zip-time", "--key", keys / "cy").code == 0, "what is installed: the same files"
    assert bench("packages", "verify", wheel).code == 0
    assert bench("run", "z.yaml", "--new").code == 0


def test_a_package_that_was_altered_by_one_byte_is_refused(team, bench, keys):
    site = team / "site"
    bench("packages", "sign", "zip-time", "--key", keys / "ada")
    for name in (
        "zip_time/__init__.py",
        "zip_time/data.txt",
        "zip_time-1.0.dist-info/METADATA",
        "zip_time-1.0.dist-info/entry_points.txt",
        "zip_time-1.0.dist-info/WHEEL",
    ):
        good = (site / name).read_bytes()
        (site / name).write_bytes(good.replace(b"e", b"f", 1) if name.endswith(("WHEEL", "txt")) else good + b"\n")
        standing = verified(team)
        assert not standing.signed and f"{name} is not as it was signed" in standing.says, standing
        (site / name).write_bytes(good)
    (site / "zip_time/data.txt").rename(site / "data.txt")
    assert "zip_time/data.txt, which was signed, is missing" in verified(team).says
    (site / "data.txt").rename(site / "zip_time/data.txt")
    assert verified(team).signed
    (site / "zip_time" / "json.py").write_text("x = 1")
    assert "zip_time/json.py was not signed" in verified(team).says
    assert bench("run", "z.yaml").code == 5
    (site / "zip_time" / "json.py").unlink()
    (site / "zip_time.abi3.so").write_text("in front of the folder")
    assert "zip_time.abi3.so was not signed" in verified(team).says
    (site / "zip_time.abi3.so").unlink()
    (site / "zip_time" / "sub").symlink_to(team)
    assert "zip_time/sub was not signed" in verified(team).says
    (site / "zip_time" / "sub").unlink()
    assert bench("run", "z.yaml").code == 0


def test_a_module_that_stands_in_front_of_the_signed_one_is_refused(team, keys, monkeypatch, packages):
    Workspace(team).packages.sign("zip-time", key=keys / "ada")
    (team / "mine" / "zip_time").mkdir(parents=True)
    (team / "mine" / "zip_time" / "__init__.py").write_text(CODE)
    monkeypatch.syspath_prepend(team / "mine")
    assert f"zip_time is taken from {team / 'mine'}" in verified(team).says


def test_a_signature_file_that_was_altered_by_one_byte_counts_for_nothing(team, keys):
    Workspace(team).packages.sign("zip-time", key=keys / "ada")
    path = the_signature(team)
    good = path.read_bytes()
    for at in range(0, len(good), 29):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert not verified(team).signed, at
    path.write_bytes(good.replace(b",", b", ", 1))
    assert "was changed" in verified(team).says and str(path) in verified(team).says
    path.write_bytes(good[:-30])
    assert "can't be read" in verified(team).says


@pytest.mark.parametrize(
    ("key", "more", "says"),
    [
        ("eve", {}, "not signed by a key that ada has"),
        ("eve", {"signed_by": "eve"}, "not signed by a key that eve has"),
        ("bob", {"signed_by": "bob"}, "bob may not register packages"),
        ("bob", {}, "not signed by a key that ada has"),
        ("ada", {"space": "git"}, "not signed by a key that ada has"),
        ("ada", {"space": "benchhouse-approval"}, "not signed by a key that ada has"),
        ("ada", {"version": "2.0"}, "it is about zip-time 2.0"),
        ("ada", {"files": {}}, "was not signed"),
    ],
)
def test_a_forged_signature_counts_for_nothing(team, keys, key, more, says):
    Workspace(team).packages.sign("zip-time", key=keys / "ada")
    path, space = the_signature(team), more.get("space", "benchhouse-package")
    item = SignedPackage.model_validate_json(path.read_bytes())
    signed = item.signed.model_copy(update={name: value for name, value in more.items() if name != "space"})
    forged = SignedPackage(signed=signed, signature=sign(signed.signed_bytes(), keys / key, space))
    path.write_text(signed_text(forged))
    assert not (standing := verified(team)).signed and says in standing.says


def test_a_key_that_ended_and_a_person_who_left_vouch_for_nothing(team, keys, trust):
    public = trust()
    Workspace(team).packages.sign("zip-time", key=keys / "ada")
    commit_of(team / "repository", keys / "ada")
    for more, says in (
        ({"key_ends": [{"key": public["ada"], **LOST}]}, "counts no more since 2020-01-01: the laptop was lost"),
        ({"people": {"cy": {"role": "admin", "keys": [public["cy"]]}}}, "in trusted.yaml"),
        ({"people": {"ada": {"role": "approve", "keys": [public["ada"]]}}}, "may not register packages"),
    ):
        trust(**more)
        for standing in (verified(team), of_folder(read_trusted(Workspace(team).folder), team / "repository")):
            assert not standing.signed and says in standing.says, standing
    trust(key_ends=[{"key": public["ada"], "until": "2999-01-01", "why": "a guest"}])
    assert verified(team).signed
    with pytest.raises(BenchError, match="counts no more since 2020"):
        trust(key_ends=[{"key": public["ada"], **LOST}])
        Workspace(team).packages.sign("zip-time", key=keys / "ada")


def test_what_is_no_wheel_or_changes_on_the_way_and_bundles_of_sigstore_are_not_signed(team, bench, keys):
    shutil.copyfile(
        make_wheel(team / "dist", "2.0", more={"zip_time-2.0.data/scripts/x": "#!python\n"}), team / "a.whl"
    )
    done = bench("packages", "sign", team / "a.whl", "--key", keys / "ada")
    assert done.code == 2 and "zip_time-2.0.data/scripts/x" in done.err and "changed when it is installed" in done.err
    about = {"zip_time-3.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: zip-time\nVersion: ../../x\n"}
    evil = make_wheel(team / "dist", "3.0", more=about)
    assert "is no name or version of a package" in bench("packages", "sign", evil, "--key", keys / "ada").err
    (team / "b.whl").write_text("no zip")
    assert "b.whl is no wheel that can be read" in bench("packages", "sign", team / "b.whl", "--key", keys / "ada").err
    bundle = team / "signatures" / "zip_time-1.0-py3-none-any.whl.sigstore.json"
    bundle.parent.mkdir()
    bundle.write_text("{}")
    for words in (("sign", bundle, "--key", keys / "ada"), ("verify", bundle)):
        done = bench("packages", *words)
        assert done.code == 2 and "a bundle of sigstore, which is not checked here" in done.err
    assert "bundles of sigstore are not checked here" in bench("run", "z.yaml").err


def verified(team: Path):
    """How what is installed as zip-time stands, whatever nexus there is."""
    from benchhouse.catalog.distribution_files import find_distribution
    from benchhouse.runs.package_signatures import of_distribution

    folder = Workspace(team).folder
    return of_distribution(folder, read_trusted(folder), find_distribution("zip-time"))


def commit_of(root: Path, key: Path | None) -> Path:
    """A nexus in git with a package and a benchmark of it."""
    home = root / "packages" / "zips"
    (home / "benchmark_instances" / "small").mkdir(parents=True)
    (home / "nexus.yaml").write_text("package: {name: zips, benchmark_packages: []}\n")
    scenario = "scenario: small\nexperiment: command\nworkload: {argv: ['true']}\n"
    (home / "benchmark_instances" / "small" / "scenario.yaml").write_text(scenario)
    (home / "link").symlink_to("nexus.yaml")
    git(root, "init", "-q", "-b", "main")
    commit(root, key)
    return home


def test_a_benchmark_of_a_nexus_runs_where_its_commit_is_signed_and_its_files_are_as_in_it(
    tmp_path, trust, bench, keys
):
    home = commit_of(tmp_path, None)
    (tmp_path / ".gitignore").write_text("/.bench\n/results\n/reports\n")
    scenario = home / "benchmark_instances" / "small" / "scenario.yaml"
    refused = bench("run", scenario)
    assert refused.code == 5 and "is not signed" in refused.err and "commit --amend --no-edit -S" in refused.err
    listed = bench("packages", "list")
    assert "not signed" in listed.out and "bench packages verify" in listed.err
    trust(people={**json.loads((tmp_path / "trusted.yaml").read_text())["people"], login(): {"role": "admin"}})
    evaluated = json.loads(bench("evaluate", "--all", "--json").out)["runs"]
    assert [run["state"] for run in evaluated] == ["refused"] and "is not signed" in evaluated[0]["why"]
    for key, says in (("eve", "a key that nobody has in trusted.yaml: SHA256:"), ("bob", "bob, who may not register")):
        commit(tmp_path, keys / key, "--amend")
        assert says in bench("run", scenario).err
    commit(tmp_path, keys / "ada", "--amend")
    assert bench("run", scenario).code == 0
    assert json.loads(bench("packages", "list", "--json").out)[0]["signature"] == "signed"
    assert bench("packages", "verify", "--json").code == 0
    for name, change, says in (
        ("nexus.yaml", lambda path: path.write_text(path.read_text() + " "), "nexus.yaml is not as in the commit"),
        ("extra.yaml", lambda path: path.write_text("x"), "extra.yaml is not in the commit"),
        ("nexus.yaml", lambda path: path.unlink(), "nexus.yaml is not as in the commit"),
        ("link", lambda path: (path.unlink(), path.symlink_to("extra")), "link is not as in the commit"),
    ):
        change(home / name)
        assert says in bench("packages", "verify").out if (home / "nexus.yaml").exists() else True
        (changed,) = changed_since_commit(home, git(tmp_path, "rev-parse", "HEAD"))
        assert says == changed
        git(tmp_path, "clean", "-fdq", "packages")
        git(tmp_path, "checkout", "-q", ".")
    inner = scenario.parent / "packages" / "x"
    inner.mkdir(parents=True)
    (inner / "nexus.yaml").write_text("package: {name: x}\n")
    assert "small/packages/x/nexus.yaml is not in the commit" in bench("run", scenario, "--new").err
    git(tmp_path, "clean", "-fdq", "packages")
    git(tmp_path, "update-index", "--assume-unchanged", str(scenario))
    scenario.write_text(scenario.read_text().replace("true", "false"))
    assert git(tmp_path, "status", "--porcelain", "packages") == "", "git is told to look away"
    refused = bench("run", scenario, "--new")
    assert refused.code == 5 and "scenario.yaml is not as in the commit" in refused.err


def test_a_merge_that_a_server_made_counts_by_the_commit_that_it_brought(tmp_path, trust, keys):
    home = commit_of(tmp_path / "n", keys / "ada")
    root, trusted = tmp_path / "n", read_trusted(Workspace(tmp_path).folder)
    git(root, "checkout", "-q", "-b", "change")
    (home / "more.yaml").write_text("a: 1\n")
    signed = commit(root, keys / "cy")
    git(root, "checkout", "-q", "main")
    (root / "other.txt").write_text("x")
    commit(root, None)
    git(root, "merge", "-q", "--no-ff", "-m", "by a server", "change")
    standing = of_folder(trusted, home)
    assert standing.signed and standing.signed_by == "cy" and signed[:12] in standing.says
    (home / "more.yaml").write_text("a: 2\n")
    commit(root, None)
    assert not of_folder(trusted, home).signed
    assert "can't be held to a commit" in of_folder(trusted, tmp_path / "keys-of-nobody").says


def test_a_signed_commit_object_with_another_content_is_none(tmp_path, trust, keys):
    """The signature of one commit under the tree of another, and an object put in place of another."""
    home = commit_of(tmp_path / "n", keys / "ada")
    root, trusted = tmp_path / "n", read_trusted(Workspace(tmp_path).folder)
    good = git(root, "rev-parse", "HEAD")
    (home / "evil.yaml").write_text("a: 1\n")
    unsigned = commit(root, None)
    tree = git(root, "rev-parse", "HEAD^{tree}")
    lines = git(root, "cat-file", "commit", good).splitlines()
    (tmp_path / "forged").write_text("\n".join([f"tree {tree}", *lines[1:]]) + "\n")
    forged = git(root, "hash-object", "-t", "commit", "-w", str(tmp_path / "forged"))
    git(root, "reset", "-q", "--hard", forged)
    assert "has a signature that is wrong" in of_folder(trusted, home).says
    git(root, "reset", "-q", "--hard", unsigned)
    git(root, "replace", unsigned, good)
    assert not of_folder(trusted, home).signed
    git(root, "config", "gpg.ssh.program", "true")
    git(root, "config", "gpg.ssh.allowedSignersFile", "/dev/null")
    git(root, "replace", "-d", unsigned)
    git(root, "reset", "-q", "--hard", good)
    assert of_folder(trusted, home).signed, "what the checkout says of programs and signers does not count"


def test_what_is_installed_as_a_link_to_a_folder_is_held_to_its_commit(
    tmp_path, packages, trust, bench, keys, monkeypatch
):
    source = tmp_path / "project"
    source.mkdir()
    (source / "zip_time.py").write_text(CODE)
    git(source, "init", "-q")
    commit(source, None)
    packages.add("zip-time", "zip_time", CODE, "zip.time = zip_time:run")
    info = packages.folder / "zip-time-1.0.dist-info"
    (info / "RECORD").write_text("zip-time-1.0.dist-info/METADATA,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    (tmp_path / "z.yaml").write_text("scenario: z\nexperiment: zip.time\n")
    assert "is not signed" in bench("run", "z.yaml").err
    commit(source, keys / "ada", "--amend")
    assert f"zip_time is taken from {packages.folder}" in bench("run", "z.yaml").err
    (packages.folder / "zip_time.py").unlink()
    packages.forget()
    monkeypatch.syspath_prepend(source)
    monkeypatch.setenv("PYTHONPATH", f"{source}:{packages.folder}")
    assert bench("run", "z.yaml").code == 0
    (source / "zip_time.py").write_text(CODE + "\n")
    assert f"{source / 'zip_time.py'} is not as in the commit" in bench("run", "z.yaml", "--new").err


def test_what_differs_is_told_by_name():
    rows = [
        ({"a": "1"}, {"a": "1"}, ""),
        ({"a": "1"}, {"a": "2"}, "a is not as it was signed"),
        ({"a": "1"}, {}, "a, which was signed, is missing"),
        ({}, {"a": "1"}, "a was not signed"),
        ({"a": "1", "b": "1"}, {"a": "2", "c": "3"},
         "a is not as it was signed; b, which was signed, is missing; c was not signed"),
        ({}, dict.fromkeys("abcde", "1"), "a was not signed; b was not signed; c was not signed and 2 more"),
    ]  # fmt: skip

    def check(signed, there, says):
        assert differences(signed, there) == says

    check_rows(check, rows)
