"""`bench servers` and `bench start`."""

import json
import os
import signal

import pytest
from laboratory import wait_until
from services.small_server import recipe


@pytest.fixture
def small(lab):
    (lab.workspace / "recipes").mkdir()
    lab.write = lambda *words, **more: (lab.workspace / "recipes" / "small.yaml").write_text(
        json.dumps(recipe(*words, **more))
    )
    lab.write("answer")
    return lab


def test_a_server_lives_until_it_is_stopped(small):
    started = small.bench("servers", "start", "small")
    name, endpoint = started.stdout.split()
    assert name.startswith("small-") and "stop it:  bench servers stop small-" in started.stderr
    listed = small.bench("servers", "ps").stdout
    assert name in listed and endpoint in listed and "ready" in listed
    assert f"{name} answers: {endpoint}" in small.bench("servers", "check", name[:8]).stdout
    assert "starting on" in small.bench("servers", "logs", name).stdout
    assert small.bench("servers", "stop", name).stdout == f"stopped {name}\n"
    assert "no server is running" in small.bench("servers", "ps").stderr
    small.is_tidy()


def test_a_recipe_is_copied_by_redirecting_what_is_shown(small):
    copy = small.workspace / "recipes" / "postgres.yaml"
    copy.touch()  # as a shell does for `> recipes/postgres.yaml`, before anything is started
    copy.write_text(small.bench("servers", "show", "postgres").stdout)
    assert f"{copy}: ok, recipe postgres" in small.bench("servers", "validate", copy).stdout


def test_several_replicas_have_endpoints_of_their_own(small):
    started = json.loads(small.bench("servers", "start", "small", "--replicas", "2", "--json").stdout)
    assert len(set(started["endpoints"])) == 2 and len(started["pids"]) == 2
    assert small.bench("servers", "stop", "--all").stdout == f"stopped {started['id']}\n"
    small.is_tidy()


def test_a_server_that_fails_to_start_is_told_with_its_words_and_leaves_nothing(small):
    small.write("answer", "die-after:0.01", "never")
    done = small.bench("servers", "start", "small", code=1)
    assert "ended with 3 before it was ready" in done.stderr and "out of memory" in done.stderr
    small.is_tidy()


def test_a_server_that_dies_is_no_longer_listed_and_check_tells(small):
    small.write("answer", "die-after:1.5")
    name = json.loads(small.bench("servers", "start", "small", "--json").stdout)["id"]
    wait_until(lambda: json.loads(small.bench("servers", "ps", "--json").stdout) == [], "it to die")
    done = small.bench("servers", "check", name, code=1)
    assert "does not answer (failed)" in done.stdout and "out of memory" in done.stdout
    small.is_tidy()


def test_a_server_that_hangs_is_not_healthy(small):
    started = json.loads(small.bench("servers", "start", "small", "--json").stdout)
    os.kill(started["pids"][0], signal.SIGSTOP)
    done = small.bench("servers", "check", started["id"], "--timeout", "1s", code=1)
    assert "does not answer" in done.stdout
    small.bench("servers", "stop", started["id"], timeout_s=60)
    small.is_tidy()


def test_a_killed_keeper_is_shown_as_lost_and_swept_by_the_next_start(small):
    small.write("answer", "family")
    first = json.loads(small.bench("servers", "start", "small", "--json").stdout)
    os.kill(int(first["job"]), signal.SIGKILL)
    wait_until(lambda: "lost" in small.bench("servers", "ps").stdout, "it to be missed")
    second = json.loads(small.bench("servers", "start", "small", "--json").stdout)
    assert [item["id"] for item in json.loads(small.bench("servers", "ps", "--json").stdout)] == [second["id"]]
    small.bench("servers", "stop", "--all")
    small.is_tidy()


def test_recipes_are_listed_with_their_versions(bench):
    rows = {row["recipe"]: row for row in json.loads(bench("servers", "list", "--json").out)}
    assert rows["postgres"]["version"] and rows["postgres"]["program"] and rows["postgres"]["licence"] == "PostgreSQL"
    assert rows["qdrant"]["version"] is None and "releases" in rows["qdrant"]["install"]
    assert "not installed" in bench("servers", "list").out


def test_a_recipe_can_be_shown_changed_and_checked(bench, tmp_path):
    text = bench("servers", "show", "chroma").out
    (tmp_path / "mine.yaml").write_text(text.replace("name: chroma", "name: mine"))
    assert "mine.yaml: ok, recipe mine" in bench("servers", "validate", "mine.yaml").out


def test_a_recipe_with_a_mistake_is_refused_with_its_place(bench, tmp_path):
    for change, part in (
        ({"endpont": "x"}, "did you mean 'endpoint'"),
        ({"environment": {"API_TOKEN": "abcdef"}}, "API_TOKEN"),
        ({"ready": {"kind": "htp"}}, "did you mean 'http'"),
        ({"ports": {"port": "http"}}, "port"),
    ):
        (tmp_path / "bad.yaml").write_text(json.dumps(recipe("answer") | change, indent=1))
        done = bench("servers", "validate", "bad.yaml")
        assert done.code == 2 and "bad.yaml:" in done.err and part in done.err, change
        assert "abcdef" not in done.err


def test_wrong_names_and_parameters_are_refused(bench):
    for arguments, part in (
        (("start", "postgras"), "did you mean 'postgres'"),
        (("start", "triton"), "'models'"),
        (("start", "postgres", "-p", "size"), "KEY=VALUE"),
        (("start", "postgres", "-p", "size=3"), "'size'"),
        (("start", "postgres", "--timeout", "soon"), "soon"),
        (("check", "nobody"), "'nobody'"),
        (("stop",), "--all"),
        (("validate", "nothing.yaml"), "nothing.yaml"),
    ):
        done = bench("servers", *arguments)
        assert done.code == 2 and part in done.err, (arguments, done.err)


def test_a_secret_parameter_is_given_by_the_name_of_its_variable(small):
    told = ["{program}", "-c", "import sys; sys.exit(sys.argv[1])", "{api_key}"]
    small.write("answer", parameters={"api_key": None}, command=told)
    done = small.bench("servers", "start", "small", "-p", "api_key=open-sesame", code=2)
    assert "'api_key' is a secret in plain text" in done.stderr and "open-sesame" not in done.stderr
    done = small.bench("servers", "start", "small", "-p", "api_key=http://me:open/sesame@host", code=2)
    assert "sesame" not in done.stderr
    small.variables["MY_KEY"] = "open-sesame"
    done = small.bench("servers", "start", "small", "-p", "api_key=$MY_KEY", code=1)
    assert "before it was ready:\n    [redacted]" in done.stderr, "it reached the server, which shouted it"
    files = [path for path in (small.workspace / ".bench" / "services").rglob("*") if path.is_file()]
    assert len(files) > 3 and not any("open-sesame" in path.read_text() for path in files)


def test_a_bind_that_does_not_exist_is_told(small):
    small.write("answer", binds=["/no/such/folder:/no/such/folder"])
    assert "needs /no/such/folder, which is not there" in small.bench("servers", "start", "small", code=1).stderr
    small.is_tidy()


def test_start_takes_a_recipe_or_a_scenario(small):
    name = small.bench("start", "small").stdout.split()[0]
    small.bench("servers", "stop", name)
    run_id = small.bench("start", small.scenario("once")).stdout.strip()
    wait_until(lambda: "finished" in small.bench("status", run_id).stdout, "the run to end")
    small.is_tidy()
