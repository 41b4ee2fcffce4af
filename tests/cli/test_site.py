"""`bench site`: profiles, and what is true of this machine. A program that is missing is an answer, never an error."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchhouse.sites import probes
from benchhouse.sites.profiles import load_site


@pytest.fixture
def fake_program(tmp_path, monkeypatch):
    """Only these programs are on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name, code):
        (folder / name).write_text(f"#!{sys.executable}\nimport sys, time\n{code}\n")
        (folder / name).chmod(0o755)

    return add


@pytest.fixture
def page():
    """A web server that knows nothing of Kubernetes: its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"hi")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def checked(bench, *args):
    done = bench("site", "check", "--json", *args)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    return {item["what"]: item for item in document["findings"]}, document["profile"]


def test_shipped_profiles_are_listed_and_the_one_in_use_is_marked(bench, tmp_path, monkeypatch):
    rows = {row["site"]: row for row in json.loads(bench("site", "list", "--json").out)}
    assert {"lab", "local", "meluxina"} <= rows.keys()
    assert [name for name, row in rows.items() if row["used"]] == ["local"]
    assert rows["meluxina"]["to_confirm"] > 5
    (tmp_path / "site.yaml").write_text("site: mine\n")
    used = [row["site"] for row in json.loads(bench("site", "list", "--json").out) if row["used"]]
    assert used == ["(this workspace)"]
    monkeypatch.setenv("BENCH_SITE", "lab")
    assert [row["site"] for row in json.loads(bench("site", "list", "--json").out) if row["used"]] == ["lab"]


def test_a_profile_is_shown_as_yaml_that_reads_back_the_same(bench, tmp_path):
    done = bench("site", "show", "meluxina")
    (tmp_path / "copy.yaml").write_text(done.out)
    assert bench("site", "show", "./copy.yaml", "--json").out == bench("site", "show", "meluxina", "--json").out
    assert "max_time: 2d" in done.out and "memory: 512GB" in done.out and "to confirm on the site" in done.err
    assert "did you mean 'meluxina'?" in bench("site", "show", "meluxinna").err


def test_a_machine_without_anything_is_told_so(bench, fake_program, monkeypatch):
    for name in ("WORK", "LMOD_CMD", "MODULESHOME", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    found, profile = checked(bench)
    assert found["slurm"]["state"] == found["apptainer"]["state"] == found["$WORK"]["state"] == "missing"
    assert "not inside a job" in found["this node"]["value"]
    assert found["room"]["state"] == found["filesystem's clock"]["state"] == "good"
    assert profile["executor"] is None and not [name for name in found if name.startswith("egress")]


def test_a_slurm_that_does_not_answer_is_unknown_and_takes_no_longer_than_it_may(bench, fake_program, monkeypatch):
    monkeypatch.setattr("benchhouse.sites.commands.LIMIT_S", 0.3)
    fake_program("sinfo", "print('slurm 23.11') if '-V' in sys.argv else time.sleep(60)")
    found, profile = checked(bench)
    assert found["slurm"]["state"] == "unknown" and "scontrol ping" in found["slurm"]["note"]
    assert profile["executor"] is None


def test_what_is_written_is_a_profile_and_never_written_over(bench, tmp_path, fake_program, monkeypatch):
    monkeypatch.setenv("WORK", str(tmp_path))
    fake_program("apptainer", "print('apptainer version 1.4.5')")
    done = bench("site", "check", "--write", "site.yaml")
    assert done.code == 0 and "apptainer version 1.4.5" in done.out
    site = load_site(tmp_path / "site.yaml")
    assert (site.runtime, site.folders.containers) == ("apptainer", "$WORK/containers")
    assert "exists already" in bench("site", "check", "--write", "site.yaml").err
    assert "can't write" in bench("site", "check", "--write", "no/such/folder.yaml").err
    assert bench("site", "show").out == (tmp_path / "site.yaml").read_text()


def test_the_network_is_asked_only_when_it_may_be(bench, monkeypatch):
    monkeypatch.setattr(probes, "_HOSTS", {"nobody": "http://127.0.0.1:9/"})
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    found, profile = checked(bench, "--network")
    assert found["egress to nobody"]["state"] == "missing" and "inside job 7" in found["this node"]["value"]
    assert profile["network"]["egress"] is False
    assert checked(bench)[1]["network"]["egress"] is True  # not asked: as by default


def test_a_workspace_that_can_not_be_written_is_told(bench, tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(probes.tempfile, "NamedTemporaryFile", refuse)
    found, _ = checked(bench)
    assert "Permission denied" in found["workspace"]["note"]


def write_kubeconfig(path, server, **user):
    """One context, `here`."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("namespace: Team_One", "is no namespace: at most 63 of"),
        (f"node_selector: {{pool: {'a' * 64}}}", "is no value of a label: at most 63 letters"),
        ("pull_secrets: [My_Secret]", "is no name of a Kubernetes object"),
    ],
)
def test_names_that_kubernetes_does_not_take_are_told_with_their_line(bench, tmp_path, line, words):
    (tmp_path / "site.yaml").write_text(f"site: team\nkubernetes:\n  {line}\n")
    done = bench("site", "show")
    assert done.code == 2 and "site.yaml:3:" in done.err and words in done.err


def test_a_machine_without_a_kubeconfig_is_told_so(bench, tmp_path):
    found, profile = checked(bench)
    assert found["kubernetes"]["state"] == "missing" and "no kubeconfig here" in found["kubernetes"]["note"]
    assert profile["executor"] is None and profile["kubernetes"]["context"] is None
    (tmp_path / "site.yaml").write_text("executor: kubernetes\n")
    assert "export KUBECONFIG=" in checked(bench)[0]["kubernetes"]["note"]


@pytest.mark.parametrize(
    ("server", "context", "words"),
    [
        ("https://127.0.0.1:9", "here", "https://127.0.0.1:9 of the context 'here' can't be reached"),
        ("https://127.0.0.1:9", "there", "there is no context 'there'"),
        ("127.0.0.1:9", "here", "has no address of an API server"),
    ],
)
def test_a_cluster_that_can_not_be_asked_is_told(bench, tmp_path, monkeypatch, server, context, words):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    write_kubeconfig(tmp_path / "config", server)
    (tmp_path / "site.yaml").write_text(f"kubernetes: {{context: {context}}}\n")
    found, profile = checked(bench, "--job")
    assert found["kubernetes"]["state"] != "good" and words in found["kubernetes"]["note"]
    assert profile["executor"] == "kubernetes" and "namespace" not in found


def test_a_server_that_is_no_api_server_is_told(bench, tmp_path, monkeypatch, page):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    write_kubeconfig(tmp_path / "config", page)
    note = checked(bench)[0]["kubernetes"]["note"]
    assert page in note and "kubectl --context here version" in note
