"""Services of a run, from before its first trial until after its last, whatever dies on the way."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from laboratory import wait_until
from services.small_server import with_small

from benchhouse.runs.preparation import prepare

ASK = """
import contextlib, os, re, time, urllib.request
from pathlib import Path
from benchhouse import Context

def ask(target: dict, ctx: Context, seconds: float = 0.0, n: int = 0):
    url = target["url"]
    mark = Path(os.environ["LAB"], f"asked-{n}-{os.getpid()}")
    mark.write_text(url + "\\n" + os.environ.get("BENCH_SERVICE_WEB", ""))
    url = re.sub("//[^@]*@", "//", url)
    until = time.monotonic() + seconds
    while True:
        for each in url.split(","):
            urllib.request.urlopen(each, timeout=5).read()
        if time.monotonic() >= until:
            break
        time.sleep(0.02)
    print("asked", target["url"])
    ctx.emit("asked", 1)
    ctx.metadata(url=target["url"])

def wait(target: dict, ctx: Context, n: int = 0, kill: bool = False):
    Path(os.environ["LAB"], f"waits-{n}").touch()
    if kill:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(target["url"] + "/die", timeout=5)
    time.sleep(60)
    ctx.emit("x", 1)

def until_sick(target: dict, ctx: Context, n: int = 0):
    (state,) = Path(os.environ["LAB"]).parent.glob("*/.bench/runs/*/services/web/state.json")
    until = time.monotonic() + 60
    while '"unhealthy"' not in state.read_text() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2)  # for whoever asks for the status
    ctx.emit("x", 1)

def swallow(target: dict, ctx: Context, n: int = 0):
    while True:
        try:
            time.sleep(60)
        except Exception:
            pass
"""


@pytest.fixture
def served(lab):
    """A lab with experiments that use a server; `served.small(*words)` writes `recipes/small.yaml`."""
    names = ("ask", "wait", "until_sick", "swallow")
    entries = "\n".join(["[benchhouse.experiments]", *(f"{name} = ask:{name}" for name in names)])
    lab.install("ask", "1.0", ASK, entries)
    return with_small(lab)


def scenario(mode="attached", **more):
    web = {"recipe": "small"} | ({"mode": mode} if mode else {})
    return {"services": {"web": web | more.pop("use", {})}, "target": {"url": "service:web"}} | more


def urls(lab):
    return [path.read_text().splitlines()[0] for path in sorted(lab.marks.glob("asked-*"))]


def state(lab, name="web"):
    path = lab.workspace / ".bench" / "runs" / lab.run_id() / "services" / name / "state.json"
    return json.loads(path.read_text())


def secrets_of(lab):
    return [path.read_text().partition("user:")[2].partition("@")[0] for path in lab.marks.glob("asked-*")]


@pytest.mark.slow("it starts a server in every way in which a run or a trial can own one")
@pytest.mark.parametrize("mode", ["attached", None])
def test_a_service_is_started_once_a_run_or_once_a_trial_and_nothing_of_it_is_left(served, mode):
    """A server that ignores SIGTERM, has children outside its session, prints 40 MB and its secret."""
    words = ("answer", "stubborn", "family", "shout:40", "secret")
    served.small(*words, endpoint="http://user:{secret}@127.0.0.1:{port}", ready={"kind": "tcp"})
    served.run("ask", **scenario(mode=mode, workload={"n": [1, 2, 3] if mode else [1, 2]}))
    served.is_tidy()
    if mode:
        assert len(urls(served)) == 3 and len(set(urls(served))) == 1
        assert state(served)["phase"] == "stopped"
        assert {trial.meta["custom"]["services"]["web"]["mode"] for trial in served.trials()} == {"attached"}
    else:
        assert len(set(urls(served))) == 2
        assert all(trial.meta["custom"]["services"]["web"]["start_s"] > 0 for trial in served.trials())
        served.bench("run", served.trials()[0].folder / "effective_config.yaml", "--new")
        assert len(urls(served)) == 3
    known = secrets_of(served)
    assert known and all(len(secret) >= 32 for secret in known)
    for place in (served.workspace / "results", served.workspace / ".bench"):
        for path in place.rglob("*"):
            if path.is_file():
                assert not any(secret in path.read_text(errors="replace") for secret in known), path


def test_an_external_service_is_neither_started_nor_ended_and_its_port_is_taken(served):
    started = json.loads(served.bench("servers", "start", "small", "--json").stdout)
    endpoint = started["endpoints"][0]
    more = {"services": {"web": {"endpoint": endpoint}}, "target": {"url": "service:web"}}
    served.run("ask", **more)
    assert urls(served) == [endpoint]
    served.bench("servers", "check", started["id"])
    port = int(endpoint.rpartition(":")[2])
    served.small("answer", ports={"port": port})
    done = served.bench("run", served.scenario("ask", name="taken", **scenario()), code=1)
    assert f"small wants port {port} (port), and something else has it" in done.stderr
    served.bench("servers", "stop", started["id"])
    served.is_tidy()


def test_the_digest_of_an_instance_says_what_serves_it_and_not_where(served):
    digests = []
    for use in ({}, {}, {"replicas": 2}, {"mode": "embedded"}):
        path = served.scenario("command", **scenario(use=use) | {"target": {"argv": ["true"]}})
        prepared = prepare(served.workspace_object(), path)
        digests += [trial.instance_digest for trial in prepared.plan.trials()]
    assert digests[0] == digests[1] and len(digests) == 4 and len(set(digests)) == 3


def test_all_replicas_are_handed_over_and_one_can_be_named(served):
    several = scenario(use={"replicas": 3}) | {"target": {"url": ["service:web", "service:web#1"]}}
    served.run("ask", **several)
    one, three = sorted((url.split(",") for url in urls(served)), key=len)
    assert len(one) == 1 and len(set(three)) == 3 and three[1] == one[0]
    served.is_tidy()


def test_a_service_that_dies_in_mid_trial_fails_it_at_once_and_ends_the_sweep(served):
    served.small("answer", "mortal")
    began = time.monotonic()
    told = served.run("wait", code=1, **scenario(workload={"n": [1, 2, 3], "kill": True}))
    assert time.monotonic() - began < 50, "no time-out was waited for"
    (failure,) = told["failures"]
    assert failure["code"] == "server_died" and "ended with 3" in failure["message"]
    assert "out of memory" in failure["message"]
    assert len(list(served.marks.glob("waits-*"))) == 1, "the sweep does not go on against a corpse"
    assert served.events()[-1]["event"] == "service"
    shown = served.bench("status", "@last", code=1)
    assert "stopped    web ended with 3\n" in shown.stdout and "--rerun-failed" in shown.stderr
    served.is_tidy()


def test_an_embedded_service_that_dies_fails_its_trial_at_once_and_the_next_has_its_own(served):
    served.small("answer", "die-after:1.5")
    began = time.monotonic()
    told = served.run("wait", code=1, **scenario(mode=None, workload={"n": [1, 2]}))
    assert time.monotonic() - began < 50
    assert [item["code"] for item in told["failures"]] == ["server_died"] * 2
    assert "out of memory" in told["failures"][0]["message"]
    served.is_tidy()


def test_an_experiment_that_swallows_everything_is_ended_all_the_same(served):
    served.small("answer", "die-after:1")
    told = served.run("swallow", code=1, **scenario(mode=None))
    assert told["failures"][0]["code"] == "server_died"
    served.is_tidy()


def test_an_embedded_service_that_never_becomes_ready_fails_the_trial_with_its_log(served):
    # A shell writes its line well within one second, even on a machine that is slow to start Python.
    words = ["{program}", "-c", "echo starting on {port}; exec sleep 300"]
    served.small(program=["sh"], command=words, ready={"kind": "http", "timeout": 1})
    done = served.bench("run", served.scenario("ask", **scenario(mode=None)), code=1)
    assert "was not up within 1 s (http://127.0.0.1:" in done.stderr and "starting on" in done.stderr
    served.is_tidy()


def test_an_attached_service_whose_readiness_flaps_is_not_up(served):
    served.small("answer", "flap", ready={"kind": "http", "timeout": 5, "in_a_row": 3})
    done = served.bench("run", served.scenario("ask", **scenario()), code=1)
    assert re.search(r"it was up \d+ of the \d+ times that it was asked, and never 3 times in a row", done.stderr)
    assert urls(served) == []
    served.is_tidy()


def test_a_service_that_stops_answering_is_shown_as_unhealthy_and_trials_that_begin_then_are_warned(served):
    served.small("answer", "sick-after:1")
    process = served.start("run", served.scenario("until_sick", **scenario(workload={"n": [1, 2]})), "--json")
    wait_until(lambda: "web: unhealthy, http://" in served.bench("status", "@last", code=None).stdout, "the news")
    process.communicate(timeout=120)
    warned = [[warning["code"] for warning in trial.meta["warnings"]] for trial in served.trials()]
    assert sorted(warned) == [[], ["server_unhealthy"]]
    served.is_tidy()


def test_a_secret_in_the_address_of_an_external_service_is_refused(served):
    services = {"web": {"endpoint": "http://user:open-sesame@127.0.0.1:1"}}
    done = served.bench("validate", served.scenario("ask", services=services, target={"url": "service:web"}), code=2)
    assert "'endpoint' holds a secret in plain text" in done.stderr and "open-sesame" not in done.stderr


def running_parts(lab):
    """Return the pids of the keeper and of the server."""
    wait_until(lambda: list(lab.marks.glob("waits-*")), "a trial that waits")
    told = state(lab)
    return int(told["keeper"].partition("-")[0][1:]), told["replicas"][0]["pid"]


@pytest.mark.parametrize("victim", ["orchestrator", "keeper", "server"])
def test_kill_9_of_any_part_leaves_nothing_after_stop(served, victim):
    served.small("answer", "family")
    process = served.start("run", served.scenario("wait", **scenario()))
    keeper, server = running_parts(served)
    os.kill({"orchestrator": process.pid, "keeper": keeper, "server": server}[victim], signal.SIGKILL)
    process.communicate(timeout=120)
    served.bench("stop", "@last")
    served.is_tidy()
    assert state(served)["phase"] in ("stopped", "failed")


def test_ctrl_c_ends_servers_too(served):
    process = served.start("run", served.scenario("wait", **scenario()))
    running_parts(served)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    served.is_tidy()


def test_an_orchestrator_that_is_killed_while_its_servers_start_leaves_nothing(served):
    served.small("never")
    process = served.start("run", served.scenario("wait", **scenario()))
    wait_until(lambda: any("small_server" in line for line in served.left_running()), "the server to start")
    process.kill()
    process.communicate()
    wait_until(lambda: not served.left_running(), "the keeper to notice", 50)
    served.bench("stop", "@last")
    served.is_tidy()


def test_status_shows_the_services_which_a_fork_of_the_run_keeps(served):
    process = served.start("run", served.scenario("wait", **scenario()))
    keeper, _ = running_parts(served)
    assert "--keep" not in Path(f"/proc/{keeper}/cmdline").read_text(), "it needs no new interpreter"
    assert Path(f"/proc/{keeper}/comm").read_text() == "bench-keeper\n"
    assert os.getsid(keeper) == keeper
    shown = served.bench("status", "@last").stdout
    assert f"service    web: ready, {state(served)['replicas'][0]['endpoint']}" in shown
    services = json.loads(served.bench("status", "@last", "--json").stdout)["services"]
    assert [item["phase"] for item in services] == ["ready"]
    listed = json.loads(served.bench("servers", "ps", "--json").stdout)
    assert [(item["id"], item["run_id"]) for item in listed] == [("web", served.run_id())]
    served.bench("stop", "@last")
    process.communicate(timeout=120)
    assert "service    web: stopped" in served.bench("status", "@last").stdout
    served.is_tidy()
