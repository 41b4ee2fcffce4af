"""`bench infra`: files first, programs only with --apply, and nothing of anybody else's is touched."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest

from benchhouse.api.workspace import Workspace
from benchhouse.sites.infra.folder import MANIFEST


@pytest.fixture
def fake_programs(tmp_path, monkeypatch):
    """Fakes of tofu, kind, ...: only they are on the path, and each notes the arguments that it was given."""
    folder, calls = tmp_path.parent / f"{tmp_path.name}-bin", tmp_path.parent / f"{tmp_path.name}-calls"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    class Fakes:
        def add(self, *names, code=0):
            for name in names:
                program = folder / name
                program.write_text(
                    f"#!{sys.executable}\nimport json, sys\n"
                    f"open({str(calls)!r}, 'a').write(json.dumps(['{name}', *sys.argv[1:]]) + '\\n')\n"
                    f"print('said by {name}')\nsys.exit({code})\n"
                )
                program.chmod(0o755)

        @property
        def calls(self):
            return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    return Fakes()


def shown(bench, *args):
    done = bench("infra", "show", "--json", *args)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    return document["stage"], {file["name"]: file["state"] for file in document["files"]}


KIND = ("infra", "create", "--provider", "kind", "--name", "lab")
AWS = ("infra", "create", "--provider", "aws", "--name", "lab")


def test_the_plan_with_its_cost_comes_first_and_nothing_runs_without_apply(bench, tmp_path, fake_programs):
    fake_programs.add("tofu", "aws", "kubectl")
    done = bench(*AWS, "--nodes", "1..8", "--gpu-nodes", "0..2")
    assert done.code == 0, done.err
    assert "1..8 of m6i.2xlarge, 0..2 of g6.xlarge" in done.out and "list prices of 2025-06 in us-east-1" in done.out
    assert f"tofu -chdir={tmp_path}/infra/lab apply -input=false create.tfplan" in done.out
    assert "--apply" in done.err and not fake_programs.calls
    stage, files = shown(bench)
    assert stage == "written" and set(files.values()) == {"written"} and "nvidia.yaml" in files


def test_the_estimate_is_the_sum_of_its_lines_by_the_table_of_the_user(bench, tmp_path):
    prices = tmp_path / "mine.yaml"
    hourly = "{control-plane: 1, nat-gateway: 2, public-address: 3, m6i.2xlarge: 10, g6.xlarge: 100}"
    prices.write_text(f"as_of: today\nregion: us-east-1\ncurrency: EUR\nhourly: {hourly}\nmonthly_gb: {{disk: 7.3}}\n")
    cost = json.loads(bench(*AWS, "--gpu-nodes", "1..2", "--prices", prices, "--json").out)["cost"]
    assert cost["least_hourly"] == pytest.approx(6 + 10 + 100 + 2 * 1) and cost["currency"] == "EUR"
    assert cost["most_hourly"] == pytest.approx(6 + 4 * 10 + 2 * 100 + 6 * 1)
    assert cost["most_monthly"] == pytest.approx(cost["most_hourly"] * 730)
    done = bench(*AWS, "--instance-type", "x9.huge")
    assert "No price known of: node x9.huge" in done.out and "of today in us-east-1" in done.out  # the table stays
    prices.write_text("as_of: today\nhourly: {x: -1}\n")
    assert "mine.yaml:" in bench(*AWS, "--prices", prices).err


def test_apply_runs_exactly_the_commands_that_were_printed(bench, tmp_path, fake_programs):
    fake_programs.add("kind", "kubectl")
    done = bench(*KIND, "--apply", "--json")
    folder = f"{tmp_path}/infra/lab"
    assert done.code == 0, done.err
    assert fake_programs.calls == [
        ["kind", "create", "cluster", "--name", "lab", "--config", f"{folder}/kind.yaml", "--wait", "120s"],
        ["kubectl", "--context", "kind-lab", "apply", "--filename", f"{folder}/kubernetes.yaml"],
    ]
    assert shown(bench)[0] == "applied" and "said by" not in done.out
    assert bench("infra", "destroy").code == 0 and len(fake_programs.calls) == 2
    assert bench("infra", "destroy", "infra/lab", "--apply").code == 0
    assert fake_programs.calls[2:] == [["kind", "delete", "cluster", "--name", "lab"]]
    assert not (tmp_path / "infra" / "lab").exists()


def test_opentofu_goes_before_terraform_and_a_saved_plan_is_what_is_applied(bench, tmp_path, fake_programs):
    fake_programs.add("terraform", "aws", "kubectl")
    assert bench(*AWS, "--apply").code == 0
    at = f"-chdir={tmp_path}/infra/lab"
    assert fake_programs.calls[:4] == [
        ["terraform", at, "init", "-input=false"],
        ["terraform", at, "plan", "-input=false", "-out=create.tfplan"],
        ["terraform", at, "apply", "-input=false", "create.tfplan"],
        ["aws", "eks", "update-kubeconfig", "--name", "lab", "--region", "us-east-1", "--alias", "lab"],
    ]
    fake_programs.add("tofu")
    assert bench("infra", "destroy", "--apply").code == 0
    assert fake_programs.calls[-1] == ["tofu", at, "apply", "-input=false", "destroy.tfplan"]


@pytest.mark.parametrize(("create", "program"), [(KIND, "kind"), (AWS, "tofu or terraform")])
def test_a_missing_program_is_told_before_anything_runs(create, program, bench, fake_programs):
    fake_programs.add("kubectl", "aws")
    done = bench(*create, "--apply")
    assert done.code == 2 and f"{program} is not on PATH: nothing was run" in done.err and "install" in done.err
    assert not fake_programs.calls


def test_a_program_that_fails_is_told_and_the_stage_says_that_something_may_run(bench, fake_programs):
    fake_programs.add("kubectl")
    fake_programs.add("kind", code=3)
    done = bench(*KIND, "--apply")
    assert done.code == 1 and "kind ended with exit code 3" in done.err and len(fake_programs.calls) == 1
    assert "may run, and cost" in bench("infra", "show").out
    fake_programs.add("kind")
    assert bench(*KIND, "--apply").code == 0 and shown(bench)[0] == "applied"


def test_edited_files_are_told_left_and_never_applied(bench, tmp_path, fake_programs):
    fake_programs.add("kind", "kubectl")
    bench(*KIND)
    config = tmp_path / "infra" / "lab" / "kind.yaml"
    config.write_text(config.read_text() + "# mine\n")
    done = bench(*KIND, "--nodes", "4", "--apply")
    assert done.code == 2 and "kind.yaml is edited: nothing was run" in done.err and "kind create cluster" in done.err
    assert not fake_programs.calls and config.read_text().endswith("# mine\n")
    assert shown(bench)[1]["kind.yaml"] == "edited"
    assert "edited since they were written, and left so: kind.yaml" in bench("infra", "show").err
    assert "left: kind.yaml" in bench("infra", "destroy", "--apply").err
    assert [path.name for path in config.parent.iterdir()] == ["kind.yaml"]


def test_an_edited_site_profile_stops_nothing(bench, tmp_path, fake_programs):
    fake_programs.add("kind", "kubectl")
    bench(*KIND)
    site = tmp_path / "infra" / "lab" / "site.yaml"
    site.write_text(site.read_text().replace("namespace: bench", "namespace: bench\n  image: r/n@sha256:" + "0" * 64))
    assert bench(*KIND, "--apply").code == 0 and "image:" in site.read_text()


def test_files_of_others_stay_and_what_tofu_would_read_of_them_stops_it(bench, tmp_path, fake_programs):
    fake_programs.add("tofu", "aws", "kubectl")
    bench(*AWS)
    folder = tmp_path / "infra" / "lab"
    (folder / "extra.tf").write_text('resource "aws_instance" "mine" {}\n')
    (folder / "notes.txt").write_text("mine\n")
    done = bench(*AWS, "--apply")
    assert done.code == 2 and "extra.tf was not written by `bench infra`: nothing was run" in done.err
    assert not fake_programs.calls
    (folder / "extra.tf").rename(tmp_path / "extra.tf")
    assert bench(*AWS, "--apply").code == 0
    (tmp_path / "extra.tf").rename(folder / "extra.tf")
    (folder / "terraform.tfstate").write_text("{}")
    assert "extra.tf" in bench("infra", "destroy", "--apply").err
    (folder / "extra.tf").unlink()
    done = bench("infra", "destroy", "--apply")
    assert done.code == 0 and "left: notes.txt, terraform.tfstate" in done.err
    assert {path.name for path in folder.iterdir()} == {"notes.txt", "terraform.tfstate"}


def test_what_was_applied_by_hand_is_destroyed_too(bench, tmp_path, fake_programs):
    fake_programs.add("tofu")
    bench(*AWS)
    (tmp_path / "infra" / "lab" / "terraform.tfstate").write_text("{}")
    assert "destroy.tfplan" in bench("infra", "destroy").out and not fake_programs.calls
    assert bench("infra", "destroy", "--apply").code == 0
    assert fake_programs.calls[-1][2:] == ["apply", "-input=false", "destroy.tfplan"]


def test_prices_that_somebody_edits_count_and_stay_theirs(bench, tmp_path):
    bench(*AWS)
    table = tmp_path / "infra" / "lab" / "prices.yaml"
    table.write_text(table.read_text().replace("m6i.2xlarge: 0.384", "m6i.2xlarge: 100"))
    assert "100.0000" in bench(*AWS).out and "100.0000" in bench("infra", "show").out
    assert shown(bench)[1]["prices.yaml"] == "edited"
    assert bench("infra", "destroy", "--apply").code == 0 and table.exists()


def test_a_folder_with_other_files_or_another_cluster_is_refused(bench, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "main.tf").write_text("mine\n")
    assert "has other files" in bench(*AWS, "--output", "mine").err
    assert (tmp_path / "mine" / "main.tf").read_text() == "mine\n"
    bench(*KIND)
    assert "holds lab (kind)" in bench(*AWS).err
    assert "written by `bench infra`" in bench("infra", "show", "mine").err
    assert "written by `bench infra`" in bench("infra", "destroy", "mine", "--apply").err


def test_a_file_that_is_a_link_is_not_taken_for_ours(bench, tmp_path):
    bench(*KIND)
    path = tmp_path / "infra" / "lab" / "kind.yaml"
    path.rename(tmp_path / "kind.yaml")
    path.symlink_to(tmp_path / "kind.yaml")
    assert shown(bench)[1]["kind.yaml"] == "edited"
    assert bench("infra", "destroy", "--apply").code == 0 and path.is_symlink() and (tmp_path / "kind.yaml").exists()


def test_what_is_not_said_again_stays_as_it_was(bench, tmp_path):
    bench(*AWS, "--nodes", "2..9", "--region", "eu-west-1", "--gpu-nodes", "1")
    values = json.loads((tmp_path / "infra/lab/terraform.tfvars.json").read_text())
    bench(*AWS, "--gpu-nodes", "0")
    again = json.loads((tmp_path / "infra/lab/terraform.tfvars.json").read_text())
    assert again == values | {"gpu_nodes": {"type": "g6.xlarge", "min": 0, "max": 0}}  # the bucket's name too
    assert not (tmp_path / "infra/lab/nvidia.yaml").exists()


class Killing(dict):
    """Ends the process when a third text is read."""

    reads = 0

    def __getitem__(self, name):
        self.reads += 1
        if self.reads == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(name)


def create_and_be_killed(root, tail):
    """In a process of its own, which has written two files when it gets SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            infra = Workspace(root).infra
            plan = infra.plan("aws", "lab", nodes="1..6")
            infra.create(replace(plan, texts=Killing({name: text + tail for name, text in plan.texts.items()})))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("there_before", [False, True], ids=["new", "replaced"])
def test_kill_in_the_middle_of_create_is_told_and_the_next_create_finishes(bench, tmp_path, there_before):
    if there_before:
        assert bench(*AWS).code == 0
    tail = "\n" if there_before else ""  # so that every file is another one
    assert create_and_be_killed(tmp_path, tail) == -signal.SIGKILL
    stage, files = shown(bench)
    assert stage == "written" and list(files.values()).count("written") == 2
    assert set(files.values()) == {"written", "outdated" if there_before else "missing"}
    done = bench("infra", "show")
    assert "interrupted" in done.err and "bench infra create --provider aws --name lab" in done.err
    assert bench(*AWS).code == 0
    assert set(shown(bench)[1].values()) == {"written"}
    assert json.loads((tmp_path / "infra/lab/terraform.tfvars.json").read_text())["nodes"]["max"] == 6
    assert bench("infra", "destroy", "--apply").code == 0 and not (tmp_path / "infra" / "lab").exists()


def test_a_destroy_that_was_interrupted_goes_on(bench, tmp_path, fake_programs):
    fake_programs.add("kind", "kubectl")
    bench(*KIND, "--apply")
    fake_programs.add("kind", code=1)
    assert bench("infra", "destroy", "--apply").code == 1
    assert "may still run" in bench("infra", "show").out and "is being destroyed" in bench(*KIND).err
    fake_programs.add("kind")
    assert bench("infra", "destroy", "--apply").code == 0 and not (tmp_path / "infra" / "lab").exists()


def test_a_book_that_somebody_damaged_is_told_and_nothing_is_touched(bench, tmp_path):
    bench(*KIND)
    (tmp_path / "infra" / "lab" / MANIFEST).write_text('{"request": 1}')
    done = bench("infra", "destroy", "infra/lab", "--apply")
    assert done.code == 2 and "without it nothing here is touched" in done.err
    assert (tmp_path / "infra" / "lab" / "kind.yaml").exists()


def test_a_folder_that_can_not_be_written_is_told(bench, tmp_path):
    (tmp_path / "infra").write_text("a file\n")
    done = bench(*KIND)
    assert done.code != 0 and "infra" in done.err and "Traceback" not in done.err


def test_folders_and_providers_complete(bench, monkeypatch):
    bench(*KIND)
    monkeypatch.setenv("_BENCH_COMPLETE", "bash_complete")
    for words, answers in (
        ("bench infra destroy ", ["infra/lab"]),
        ("bench infra create --provider ", ["aws", "kind", "slurm"]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        assert [line.partition(",")[2] for line in bench().out.splitlines()] == answers


def test_with_several_one_has_to_be_named(bench):
    assert "there is no infrastructure" in bench("infra", "show").err
    bench(*KIND)
    bench("infra", "create", "--provider", "aws", "--name", "team")
    done = bench("infra", "show")
    assert done.code == 2 and "infra/lab, infra/team" in done.err
    assert bench("infra", "show", "infra/team").code == 0
