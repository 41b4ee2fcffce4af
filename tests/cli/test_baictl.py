"""The `baictl` command: Benchmark AI's words, each of them a verb of ours."""

import json
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "benchmark-ai"
SITE = ("--site", EXAMPLES / "site.yaml")


@pytest.fixture
def baictl(tmp_path, monkeypatch, capsys):
    from benchhouse.cli.baictl import main

    def call(*args):
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["baictl", *map(str, args)])
            patch.chdir(tmp_path)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_a_benchmark_from_its_start_to_its_results(baictl):
    code, run_id, err = baictl("run", "benchmark", f"--descriptor={EXAMPLES / 'hello-world.toml'}", *SITE)
    assert code == 0, err
    run_id = run_id.strip()
    until = time.monotonic() + 120
    while json.loads(baictl("status", f"--name={run_id}", "--json")[1])["state"] in ("running", "waiting"):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert run_id in baictl("list")[1]
    code, out, err = baictl("get", "benchmark", f"--name={run_id}")
    assert code == 0 and "elapsed" in out, err
    code, out, err = baictl("logs", "--name", run_id)
    assert code == 0 and out, err
    assert "was not running" in baictl("delete", "benchmark", "--name", run_id)[1]


def test_a_descriptor_with_a_schedule_is_kept_and_can_be_deleted(baictl, bench):
    code, out, err = baictl("run", "benchmark", "--descriptor", EXAMPLES / "scheduled.toml", *SITE)
    assert code == 0 and "scheduled: next run" in out and "bench agent" in err
    assert baictl("delete", "--name", "scheduled")[1] == "the schedule scheduled is removed\n"
    assert json.loads(bench("schedule", "list", "--json").out) == []


def test_infrastructure_is_only_described_without_apply(baictl, tmp_path):
    code, out, err = baictl("create", "infra")
    assert code == 0 and "bai (aws)" in out, err
    assert (tmp_path / "infra" / "bai").is_dir()
    code, _, err = baictl("destroy", "infra", "infra/bai")
    assert code == 0 and "nothing was done" in err


@pytest.mark.parametrize("args", [(), ("run",), ("run", "benchmark"), ("get", "benchmark"), ("create", "infra")])
def test_every_word_has_help_with_examples(baictl, args):
    code, out, _ = baictl(*args, "--help")
    assert code == 0 and "Examples:" in out and "baictl " in out


def test_completion_and_wrong_words(baictl):
    assert "_BAICTL_COMPLETE" in baictl("completion", "bash")[1]
    code, _, err = baictl("run", "benchmark", "--descriptor", "none.toml")
    assert code == 2 and "no such file" in err
    assert baictl("get", "benchmark")[0] == 2
