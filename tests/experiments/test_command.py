import json
import os
import resource
import signal
import sys
import time

import pytest
from pydantic import ValidationError

from benchhouse.experiments.command import CommandTarget, CommandWorkload, command
from benchhouse.schema.experiment import ExperimentFailed

PYTHON = [sys.executable, "-S", "-c"]

ANY_DIGIT = {"name": "digit", "pattern": r"(\d)"}  # makes the experiment keep stdout


def python(code: str) -> dict:
    return {"argv": [*PYTHON, code]}


def test_wall_time_is_the_programs(play):
    ctx = play(command, {"argv": ["sleep", "0.05"]}, {"executions": 4})
    assert len(ctx.values["wall_ms"]) == 4
    assert all(50 <= value < 250 for value in ctx.values["wall_ms"])
    assert ctx.values["executions_per_s"] == [pytest.approx(4000 / sum(ctx.values["wall_ms"]))]
    assert ctx.values["error_rate"] == [0] and ctx.values["timeouts"] == [0]


def test_cpu_time_is_the_programs_and_is_split(play):
    burn = "import os\nwhile os.times().user < 0.2: pass"
    ctx = play(command, python(burn), {"executions": 2, "warmup": 0})
    for user, system, cpu in zip(ctx.values["user_ms"], ctx.values["system_ms"], ctx.values["cpu_ms"], strict=True):
        assert cpu == pytest.approx(user + system)
        assert 190 <= user < 400


def test_cpu_time_includes_waited_for_children(play):
    burn = f"{sys.executable} -S -c 'import os\nwhile os.times().user < 0.1: pass'"
    ctx = play(command, {"shell": burn + "; true"}, {"executions": 1, "warmup": 0})
    assert ctx.values["user_ms"][0] >= 90


def test_peak_memory_of_a_large_program_is_the_measured_one(play):
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6 + 100
    ctx = play(command, python(f"x = b'1' * {megabytes}_000_000"), {"executions": 2, "warmup": 0})
    assert ctx.facts["peak_rss_from"] == "measured executions"
    assert all(megabytes < value < megabytes + 20 for value in ctx.values["peak_rss_mb"])


def test_peak_memory_of_a_small_program_is_not_that_of_the_launcher(play):
    ballast = bytearray(os.urandom(1)) * 60_000_000
    ctx = play(command, {"argv": ["true"]}, {"executions": 2, "warmup": 2})
    del ballast
    assert ctx.facts["peak_rss_from"] == "warm-up executions"
    assert len(ctx.values["peak_rss_mb"]) == 2
    assert all(0.1 < value < 6 for value in ctx.values["peak_rss_mb"])
    assert "rss_floor" not in ctx.warnings


def test_peak_memory_below_the_floor_without_warmup_is_marked_as_a_bound(play):
    ctx = play(command, {"argv": ["true"]}, {"executions": 1, "warmup": 0})
    assert ctx.facts["peak_rss_from"] == "floor"
    assert "upper bound" in ctx.warnings["rss_floor"]


def test_executions_are_exactly_those_asked_for(play, tmp_path):
    log = tmp_path / "log"
    play(
        command,
        {"shell": f"echo run >> {log}"},
        {"executions": 5, "warmup": 2, "prepare": ["/bin/sh", "-c", f"echo prepare >> {log}"]},
    )
    assert log.read_text().split() == ["prepare", "run"] * 7


def test_prepare_is_not_timed(play):
    ctx = play(command, {"argv": ["true"]}, {"executions": 2, "warmup": 0, "prepare": ["sleep", "0.3"]})
    assert max(ctx.values["wall_ms"]) < 250


def test_a_failing_prepare_fails_the_trial(play):
    with pytest.raises(ExperimentFailed, match=r"prepare_failed.*exit code 1"):
        play(command, {"argv": ["true"]}, {"prepare": ["false"]})


def test_some_failures_are_counted_kept_and_left_out_of_latency(play, tmp_path):
    flag = tmp_path / "flag"
    line = f"if [ -e {flag} ]; then rm {flag}; echo broken >&2; exit 3; else touch {flag}; fi"
    ctx = play(command, {"shell": line}, {"executions": 4, "warmup": 0})
    assert ctx.values["error_rate"] == [0.5]
    assert len(ctx.values["wall_ms"]) == 2
    assert ctx.facts["exit_codes"] == {"0": 2, "3": 2}
    assert sorted(os.listdir(ctx.artifacts)) == ["failed-00002.stderr", "failed-00004.stderr", "last.stderr"]
    assert (ctx.artifacts / "failed-00002.stderr").read_text() == "broken\n"


def test_all_failing_fails_the_trial_and_says_why(play):
    with pytest.raises(ExperimentFailed) as failed:
        play(command, {"shell": "echo no such model >&2; exit 7"}, {"executions": 2})
    assert failed.value.code == "command_failed"
    assert "exit code 7" in failed.value.message and "no such model" in failed.value.message


def test_an_allowed_exit_code_is_a_success(play):
    ctx = play(command, {"argv": ["false"]}, {"executions": 2, "allowed_exit_codes": [0, 1]})
    assert ctx.values["error_rate"] == [0]


def test_a_signal_is_a_failure(play):
    with pytest.raises(ExperimentFailed, match="signal 9"):
        play(command, {"shell": "kill -9 $$"}, {"executions": 1})


def test_a_timeout_is_counted_and_ends_the_whole_tree(play, tmp_path):
    flag, alive = tmp_path / "flag", tmp_path / "alive"
    line = f"[ -e {flag} ] || {{ touch {flag}; exit 0; }}; (sleep 1; touch {alive}) & sleep 30"
    started = time.monotonic()
    ctx = play(command, {"shell": line}, {"executions": 2, "warmup": 0, "timeout": "200ms"})
    assert time.monotonic() - started < 2
    assert ctx.values["timeouts"] == [1] and ctx.values["error_rate"] == [0.5]
    assert len(ctx.values["wall_ms"]) == 1
    time.sleep(1.2)
    assert not alive.exists()


def test_a_timeout_holds_for_warmups_too(play):
    started = time.monotonic()
    with pytest.raises(ExperimentFailed, match="timeout after 0"):
        play(command, {"argv": ["sleep", "30"]}, {"executions": 1, "warmup": 1, "timeout": "100ms"})
    assert time.monotonic() - started < 2


def test_an_interrupted_wait_leaves_no_program_behind(play, tmp_path, monkeypatch):
    import benchhouse.experiments.processes as processes

    seen = []

    def interrupted(pid: int, options: int) -> None:
        seen.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(processes.os, "wait4", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(command, {"argv": ["sleep", "30"]}, {"executions": 1, "warmup": 0})
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_an_unknown_program_is_named(play):
    with pytest.raises(ExperimentFailed, match=r"command_not_found: no program 'no-such-program'.*install it"):
        play(command, {"argv": ["no-such-program"]}, {})


def test_a_file_that_is_no_program_is_named(play, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo no first line")
    script.chmod(0o755)
    with pytest.raises(ExperimentFailed, match=r"command_not_startable.*Exec format error"):
        play(command, {"argv": [str(script)]}, {})


def test_arguments_never_meet_a_shell(play, tmp_path):
    ctx = play(command, {"argv": ["printf", "%s", "$HOME; exit 1 | `x`"]}, {"executions": 1, "warmup": 1})
    assert (ctx.artifacts / "warmup.stdout").read_text() == "$HOME; exit 1 | `x`"


def test_stdin_and_environment_reach_every_execution(play):
    code = "import os,sys; print(sys.stdin.read() == 'héllo' and os.environ['PLANTED'] == 'yes')"
    workload = {"stdin": "héllo", "environment": {"PLANTED": "yes"}, "executions": 3, "warmup": 1}
    ctx = play(
        command, python(code + "; print('n', 1)"), {**workload, "metrics": [{"name": "n", "pattern": r"^True\nn (\d)"}]}
    )
    assert ctx.values["n"] == [1, 1, 1]


def test_stdin_is_empty_by_default(play):
    ctx = play(
        command,
        python("import sys; print('read', len(sys.stdin.read()))"),
        {"executions": 2, "metrics": [{"name": "read", "pattern": r"read (\d+)"}]},
    )
    assert ctx.values["read"] == [0, 0]


@pytest.mark.parametrize(
    ("take", "expected"), [("first", [1.5]), ("last", [1e3]), ("mean", [334.5]), ("all", [1.5, 2.0, 1e3])]
)
def test_printed_numbers_become_metrics(play, take, expected):
    metric = {"name": "loss", "unit": "nat", "direction": "lower", "pattern": r"loss=(\S+)", "take": take}
    line = "echo loss=1.5; echo loss=2 >&2; echo loss=nan; echo loss=1,000 >&2"
    ctx = play(command, {"shell": line}, {"executions": 2, "metrics": [metric]})
    assert ctx.values["loss"] == expected * 2
    assert ctx.units["loss"] == "nat"
    assert ctx.directions["loss"] == "lower"
    assert (ctx.artifacts / "last.stdout").read_text().startswith("loss=1.5")


def test_a_decimal_comma_is_not_taken_for_thousands(play):
    metric = {"name": "x", "pattern": r"x=(\S+)"}
    with pytest.raises(ExperimentFailed, match="metric_not_found"):
        play(command, {"argv": ["echo", "x=3,5"]}, {"metrics": [metric]})


def test_a_metric_missing_from_some_executions_is_a_warning(play, tmp_path):
    line = f"if [ -e {tmp_path}/f ]; then echo x=4; fi; touch {tmp_path}/f"
    ctx = play(
        command, {"shell": line}, {"executions": 3, "warmup": 0, "metrics": [{"name": "x", "pattern": "x=(.*)"}]}
    )
    assert ctx.values["x"] == [4, 4]
    assert "1 of 3" in ctx.warnings["metric_missing"]


def test_json_lines_become_metrics_and_metadata(play):
    numbers = {"tokens/s": 12.5, "wall_ms": 3, "ok": True, "model": "m", "bad": float("nan")}
    lines = f"print('noise'); print({json.dumps(numbers)!r}); print({json.dumps({'loss': 2})!r})"
    ctx = play(command, python(lines), {"executions": 2, "json_lines": True})
    assert ctx.values["tokens_s"] == [12.5, 12.5] and ctx.values["loss"] == [2, 2]
    assert ctx.values["output.wall_ms"] == [3, 3] and 3 not in ctx.values["wall_ms"]
    assert ctx.facts["output"] == {"ok": True, "model": "m", "bad": "NaN"}


def test_json_lines_without_any_number_fail(play):
    with pytest.raises(ExperimentFailed, match="metric_not_found"):
        play(command, {"argv": ["echo", "{}"]}, {"json_lines": True})


def test_kept_output_is_capped_at_its_end(play):
    ctx = play(command, python("print('x' * 300_000); print('end')"), {"executions": 1, "warmup": 1})
    kept = (ctx.artifacts / "warmup.stdout").read_bytes()
    assert len(kept) == 64 * 1024 and kept.endswith(b"end\n")


def test_the_program_does_not_inherit_pythons_ignored_sigpipe(play):
    ctx = play(command, {"argv": ["grep", "SigIgn", "/proc/self/status"]}, {"executions": 1, "metrics": [ANY_DIGIT]})
    for execution in ("warmup", "last"):
        ignored = int((ctx.artifacts / f"{execution}.stdout").read_text().split()[1], 16)
        assert not ignored & (1 << (signal.SIGPIPE - 1))


@pytest.mark.parametrize("target", [{}, {"argv": [], "shell": ""}, {"argv": ["a"], "shell": "b"}, {"argv": "a b"}])
def test_a_target_has_exactly_one_form(target):
    with pytest.raises(ValidationError):
        CommandTarget.model_validate(target)


@pytest.mark.parametrize(
    "metric",
    [
        {"name": "x", "pattern": "no group"},
        {"name": "x", "pattern": "(a)(b)"},
        {"name": "x", "pattern": "("},
        {"name": "wall_ms", "pattern": "(.)"},
        {"name": "a b", "pattern": "(.)"},
    ],
)
def test_a_bad_output_metric_is_refused(metric):
    with pytest.raises(ValidationError):
        CommandWorkload.model_validate({"metrics": [metric]})


def test_two_output_metrics_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="twice"):
        CommandWorkload.model_validate({"metrics": [{"name": "x", "pattern": "(.)"}] * 2})
