import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

import benchhouse_client
from benchhouse.experiments.command import CommandTarget, CommandWorkload, command
from benchhouse.schema.experiment import ExperimentFailed

CLIENT = str(Path(benchhouse_client.__file__).parent)
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
    (peak,) = ctx.values["peak_rss_mb"]
    assert megabytes < peak < megabytes + 20


def test_peak_memory_of_a_small_program_is_not_that_of_the_launcher(play):
    ballast = bytearray(os.urandom(1)) * 60_000_000
    ctx = play(command, {"argv": ["true"]}, {"executions": 2, "warmup": 2})
    del ballast
    assert ctx.facts["peak_rss_from"] == "warm-up executions"
    (peak,) = ctx.values["peak_rss_mb"]
    assert 0.1 < peak < 6
    assert "rss_floor" not in ctx.warnings


def test_peak_memory_is_the_largest_of_all_executions(play, tmp_path):
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6
    grow = (
        f"import os; n = len(os.listdir({str(tmp_path / 'seen')!r})); open({str(tmp_path / 'seen')!r} + f'/{{n}}', 'w')"
    )
    (tmp_path / "seen").mkdir()
    ctx = play(command, python(f"{grow}; x = b'1' * (n * {own + 50}_000_000)"), {"executions": 3, "warmup": 0})
    (peak,) = ctx.values["peak_rss_mb"]  # the first execution is below the floor, the last is the largest
    assert 2 * (own + 50) < peak < 2 * (own + 50) + 20


def test_peak_memory_that_the_launcher_hides_is_left_out(play):
    ctx = play(command, {"argv": ["true"]}, {"executions": 2, "warmup": 0})
    assert "peak_rss_mb" not in ctx.values and "peak_rss_from" not in ctx.facts
    assert "left out" in ctx.warnings["rss_floor"] and "workload.warmup" in ctx.warnings["rss_floor"]


def test_peak_memory_is_left_out_where_no_small_shell_can_start_the_program(play, monkeypatch):
    monkeypatch.setattr("benchhouse.experiments.command.run_small", lambda *_: None)
    ctx = play(command, {"argv": ["true"]}, {"executions": 2, "warmup": 2})
    assert "peak_rss_mb" not in ctx.values
    assert "no warm-up could show it" in ctx.warnings["rss_floor"]


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


EVERY_SECOND_FAILS = "if [ -e {0} ]; then rm {0}; echo broken >&2; exit 3; else touch {0}; fi"


def test_the_first_failing_execution_fails_the_trial(play, tmp_path):
    line = f"echo >> {tmp_path}/count; {EVERY_SECOND_FAILS.format(tmp_path / 'flag')}"
    with pytest.raises(ExperimentFailed) as failed:
        play(command, {"shell": line}, {"executions": 10, "warmup": 0})
    assert failed.value.code == "command_failed"
    assert failed.value.message.startswith("execution 2 of 10 ended with exit code 3: broken")
    assert "tolerate_failures" in failed.value.message
    assert len((tmp_path / "count").read_text()) == 2
    assert (tmp_path / "trial-1/artifacts/failed-00002.stderr").read_text() == "broken\n"


def test_a_failing_warmup_fails_the_trial(play):
    with pytest.raises(ExperimentFailed, match=r"command_failed: warm-up 1 of 2 ended with exit code 3: broken"):
        play(command, {"shell": "echo broken >&2; exit 3"}, {"warmup": 2})


def test_tolerated_failures_are_counted_kept_and_left_out_of_latency(play, tmp_path):
    line = EVERY_SECOND_FAILS.format(tmp_path / "flag")
    ctx = play(command, {"shell": line}, {"executions": 4, "warmup": 0, "tolerate_failures": True})
    assert ctx.values["error_rate"] == [0.5]
    assert len(ctx.values["wall_ms"]) == 2
    assert ctx.facts["exit_codes"] == {"0": 2, "3": 2}
    assert sorted(os.listdir(ctx.artifacts)) == ["failed-00002.stderr", "failed-00004.stderr", "last.stderr"]
    assert (ctx.artifacts / "failed-00002.stderr").read_text() == "broken\n"
    assert ctx.warnings["executions_failed"].startswith("2 of 4 executions failed")
    assert "exit code 3: broken" in ctx.warnings["executions_failed"]


def test_all_failing_fails_the_trial_even_when_tolerated(play):
    with pytest.raises(ExperimentFailed) as failed:
        play(
            command,
            {"shell": "echo no such model >&2; exit 7"},
            {"executions": 2, "warmup": 1, "tolerate_failures": True},
        )
    assert failed.value.code == "command_failed"
    assert failed.value.message == "all 2 executions failed: the first ended with exit code 7: no such model"


def test_a_success_that_complains_is_a_warning(play):
    ctx = play(command, {"shell": f"echo >&2; echo {'no file ' * 50} >&2; echo more >&2"}, {"warmup": 1})
    assert ctx.warnings["stderr_output"] == ("no file " * 50)[:200]


@pytest.mark.parametrize("warmup", [0, 2])
def test_only_the_first_success_is_listened_to(play, tmp_path, warmup):
    line = f"[ -e {tmp_path}/flag ] && echo late >&2; touch {tmp_path}/flag"
    assert "stderr_output" not in play(command, {"shell": line}, {"executions": 3, "warmup": warmup}).warnings


def test_programs_run_in_an_empty_folder_by_default(play):
    ctx = play(command, {"shell": "ls -A; pwd"}, {"executions": 1})
    assert (ctx.artifacts / "warmup.stdout").read_text() == f"{ctx.workdir}\n"


def test_programs_run_in_the_folder_asked_for(play, tmp_path):
    (tmp_path / "here").mkdir()
    script = tmp_path / "here" / "script"
    script.write_text("#!/bin/sh\ncat data.txt")
    script.chmod(0o755)
    workload = {"cwd": str(tmp_path / "here"), "prepare": ["sh", "-c", "echo found 7 > data.txt"]}
    metric = {"name": "found", "pattern": r"found (\d)"}
    ctx = play(command, {"argv": ["./script"]}, {**workload, "executions": 2, "metrics": [metric]})
    assert ctx.values["found"] == [7, 7]
    assert os.getcwd() == str(ctx.workdir)


def test_a_missing_folder_is_named(play, tmp_path):
    with pytest.raises(ExperimentFailed, match=r"no_such_folder.*/nowhere: No such file"):
        play(command, {"argv": ["true"]}, {"cwd": f"{tmp_path}/nowhere"})


def test_a_relative_program_that_is_not_there_hints_at_cwd(play):
    with pytest.raises(ExperimentFailed, match=r"no program './script'.*workload.cwd"):
        play(command, {"argv": ["./script"]}, {})


ODD = "it's {n} $HOME; *"


def test_values_fill_placeholders_everywhere(play, tmp_path):
    ctx = play(
        command,
        {"argv": ["sh", "-c", 'printf "%s|" "$@"; cat', "-", "-{n}", "{odd}", "{other}", "${n}"]},
        {
            "values": {"n": 6, "odd": ODD, "where": f"{tmp_path}/made", "x-y": 0.5},
            "stdin": "{x-y}",
            "prepare": ["touch", "{where}"],
        },
    )
    assert (ctx.artifacts / "warmup.stdout").read_text() == f"-6|{ODD}|{{other}}|${{n}}|0.5"
    assert (tmp_path / "made").exists()


def test_values_are_quoted_for_the_shell(play):
    ctx = play(command, {"shell": "printf '%s|' {odd} --x={odd}"}, {"values": {"odd": ODD}})
    assert (ctx.artifacts / "warmup.stdout").read_text() == f"{ODD}|--x={ODD}|"


def test_a_value_that_is_used_nowhere_fails(play):
    with pytest.raises(ExperimentFailed, match=r"unused_value: .*\{levle\}$"):
        play(command, {"argv": ["echo", "{level}"]}, {"values": {"levle": 1}})


def test_a_bad_value_is_refused():
    for values in [{"a b": 1}, {"a.b": 1}, {"x": True}, {"x": [1]}, {"x": None}, {"": 1}]:
        with pytest.raises(ValidationError):
            CommandWorkload.model_validate({"values": values})


def test_values_keep_their_kind():
    values = {"text": "06", "whole": 6, "real": 6.0}
    assert repr(CommandWorkload.model_validate({"values": values}).values) == repr(values)


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
    ctx = play(command, {"shell": line}, {"executions": 2, "warmup": 0, "timeout": "200ms", "tolerate_failures": True})
    assert time.monotonic() - started < 25
    assert ctx.values["timeouts"] == [1] and ctx.values["error_rate"] == [0.5]
    assert len(ctx.values["wall_ms"]) == 1
    time.sleep(1.2)
    assert not alive.exists()


def test_a_timeout_holds_for_warmups_too(play):
    started = time.monotonic()
    with pytest.raises(ExperimentFailed, match=r"timeout after 0.*\(to give it longer: workload.timeout; to count"):
        play(command, {"argv": ["sleep", "30"]}, {"executions": 1, "warmup": 1, "timeout": "100ms"})
    assert time.monotonic() - started < 25


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


def test_warmups_have_the_stdin_and_the_descriptors_of_measured_executions(play):
    workload = {"stdin": "given ", "executions": 1, "metrics": [ANY_DIGIT]}
    ctx = play(command, {"shell": "cat; ls /proc/self/fd"}, workload)
    warmup, measured = ((ctx.artifacts / f"{which}.stdout").read_text() for which in ("warmup", "last"))
    assert warmup.startswith("given ")
    assert warmup == measured


def test_stdin_is_empty_by_default(play):
    ctx = play(
        command,
        python("import sys; print('read', len(sys.stdin.read()))"),
        {"executions": 2, "metrics": [{"name": "read", "pattern": r"read (\d+)"}]},
    )
    assert ctx.values["read"] == [0, 0]


def test_printed_numbers_become_metrics(play):
    for take, expected in [("first", [1.5]), ("last", [1e3]), ("mean", [334.5]), ("all", [1.5, 2.0, 1e3])]:
        metric = {"name": "loss", "unit": "nat", "direction": "lower", "pattern": r"loss=(\S+)", "take": take}
        line = "echo loss=1.5; echo loss=2 >&2; echo loss=good; echo loss=1,000 >&2"
        ctx = play(command, {"shell": line}, {"executions": 2, "metrics": [metric]})
        assert ctx.values["loss"] == expected * 2
        assert ctx.units["loss"] == "nat"
        assert ctx.directions["loss"] == "lower"
        assert (ctx.artifacts / "last.stdout").read_text().startswith("loss=1.5")


@pytest.mark.parametrize(("take", "expected"), [("first", [1.5]), ("all", [1.5, 2.0]), ("last", []), ("mean", [])])
@pytest.mark.parametrize("word", ["nan", "-inf", "1e999"])
def test_a_number_that_is_not_finite_is_in_no_figure_and_told(play, take, expected, word):
    metric = {"name": "loss", "pattern": r"loss=(\S+)", "take": take}
    trial = command, {"shell": f"echo loss=1.5; echo loss=2; echo loss={word}"}, {"executions": 2, "metrics": [metric]}
    if not expected:
        with pytest.raises(ExperimentFailed, match=r"not_finite.*loss: what 2 executions printed is no finite number"):
            play(*trial)
        return
    ctx = play(*trial)
    assert ctx.values["loss"] == expected * 2
    assert ("2 values" in ctx.warnings["not_finite"]) if take == "all" else not ctx.warnings


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
    numbers = {"tokens/s": 12.5, "wall_ms": 3, "ok": True, "model": "m"}
    lines = f"print('noise'); print({json.dumps(numbers)!r}); print({json.dumps({'loss': 2})!r})"
    ctx = play(command, python(lines), {"executions": 2, "json_lines": True})
    assert ctx.values["tokens_s"] == [12.5, 12.5] and ctx.values["loss"] == [2, 2]
    assert ctx.values["output.wall_ms"] == [3, 3] and 3 not in ctx.values["wall_ms"]
    assert ctx.facts["output"] == {"ok": True, "model": "m"}


def test_a_member_that_is_once_not_finite_is_told_and_one_that_always_is_fails(play):
    ctx = play(command, {"argv": ["printf", '{"loss": 2}\n{"loss": NaN}\n']}, {"executions": 2, "json_lines": True})
    assert ctx.values["loss"] == [2, 2] and "loss: 2 values" in ctx.warnings["not_finite"]
    with pytest.raises(ExperimentFailed, match="not_finite"):
        play(command, {"argv": ["echo", '{"loss": NaN, "n": 1}']}, {"executions": 2, "json_lines": True})


def test_a_json_member_is_given_unit_and_direction(play):
    lines = 'print(\'{"loss": 3, "wall_ms": 1}\'); print(\'{"loss": 2, "n": 5, "tokens/s": 9}\')'
    metrics = [
        {"name": "loss", "unit": "nat", "direction": "lower"},
        {"name": "output.wall_ms", "unit": "ms"},
        {"name": "tokens_s", "unit": "1/s", "direction": "higher", "take": "last"},
        {"name": "n", "pattern": r"n.: (\d)"},
    ]
    ctx = play(command, python(lines), {"executions": 2, "json_lines": True, "metrics": metrics})
    assert ctx.values["loss"] == [3, 2] * 2  # a unit does not change the values
    assert (ctx.units["loss"], ctx.directions["loss"]) == ("nat", "lower")
    assert ctx.values["output.wall_ms"] == [1, 1] and ctx.units["output.wall_ms"] == "ms"
    assert ctx.values["tokens_s"] == [9, 9] and ctx.directions["tokens_s"] == "higher"
    assert ctx.values["n"] == ctx.values["output.n"] == [5, 5]


def test_a_json_member_that_is_never_printed_fails_and_names_those_that_are(play):
    with pytest.raises(ExperimentFailed, match=r"metric_not_found.*called los; there are: acc, loss"):
        play(
            command,
            {"argv": ["echo", '{"loss": 1, "acc": 2}']},
            {"json_lines": True, "metrics": [{"name": "los", "unit": "nat"}]},
        )


def test_emitted_records_become_metrics_without_being_asked_for(play):
    emit = f"import sys; sys.path.insert(0, {CLIENT!r})\nfrom benchhouse_client import emit\n"
    records = "[emit({'loss': 1 / step, 'step': step, 'host': 'a'}) for step in (1, 2)]"
    ctx = play(command, python(emit + records), {"executions": 2, "warmup": 1})
    assert ctx.values["loss"] == [1, 0.5, 1, 0.5]
    assert "step" not in ctx.values and ctx.facts["output"] == {"host": "a"}
    kept = (ctx.artifacts / "last.emitted.jsonl").read_text().splitlines()
    assert len(kept) == 3 and json.loads(kept[1])["step"] == 1


def test_a_shell_emits_by_a_line_in_the_folder_and_records_that_were_lost_are_a_warning(play):
    lines = """printf '{"x": 4}\nbroken\n' >> "$BENCHHOUSE_EMIT/$$.jsonl" """
    declared = [{"name": "x", "unit": "s", "direction": "lower"}]
    ctx = play(command, {"shell": lines}, {"executions": 2, "json_lines": True, "metrics": declared})
    assert ctx.values["x"] == [4, 4] and "records_lost" in ctx.warnings


def test_a_metric_without_pattern_needs_json_lines():
    with pytest.raises(ValidationError, match=r"loss has no pattern: give it one, or say json_lines: true"):
        CommandWorkload.model_validate({"metrics": [{"name": "loss", "unit": "nat"}]})


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


def test_a_target_has_exactly_one_form():
    for target in [{}, {"argv": [], "shell": ""}, {"argv": ["a"], "shell": "b"}, {"argv": "a b"}]:
        with pytest.raises(ValidationError):
            CommandTarget.model_validate(target)


def test_a_bad_output_metric_is_refused():
    for metric in [
        {"name": "x", "pattern": "no group"},
        {"name": "x", "pattern": "(a)(b)"},
        {"name": "x", "pattern": "("},
        {"name": "wall_ms", "pattern": "(.)"},
        {"name": "a b", "pattern": "(.)"},
    ]:
        with pytest.raises(ValidationError):
            CommandWorkload.model_validate({"metrics": [metric]})


def test_two_output_metrics_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="twice"):
        CommandWorkload.model_validate({"metrics": [{"name": "x", "pattern": "(.)"}] * 2})


def test_a_pattern_that_backtracks_for_ever_ends_the_trial(play):
    metrics = [{"name": "good", "pattern": r"(\d+)"}, {"name": "bad", "pattern": "(a+)+$"}]
    began = time.process_time()
    with pytest.raises(ExperimentFailed, match=r"bad: .* takes too long") as failed:
        play(command, {"argv": ["echo", "1", "a" * 60 + "!"]}, {"executions": 1, "warmup": 0, "metrics": metrics})
    assert failed.value.code == "pattern_slow" and time.process_time() - began < 5


def test_data_lies_where_the_placeholder_says(play, tmp_path):
    (tmp_path / "in.txt").write_text("7")
    data = [{"file": str(tmp_path / "in.txt"), "path": "sub/in.txt"}]
    workload = {
        "executions": 1,
        "warmup": 0,
        "metrics": [ANY_DIGIT],
        "data": data,
        "environment": {"WHERE": "{data}/sub"},
    }
    ctx = play(command, {"shell": 'cat {data}/sub/in.txt; test -f "$WHERE/in.txt"'}, workload)
    assert ctx.values["digit"] == [7]
    assert ctx.facts["data"][0]["path"] == "sub/in.txt"
    with pytest.raises(ExperimentFailed, match="wrong data"):
        play(command, {"argv": ["true"]}, {"data": [{**data[0], "md5": "0" * 32}]})
