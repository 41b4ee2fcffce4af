"""What is installed: found without being trusted, described apart, remembered until it changes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from laboratory import wait_until

from benchhouse.catalog import listing
from benchhouse.catalog.entries import entries, find_plug, plug
from benchhouse.catalog.listing import list_experiments, resolve, version_key
from benchhouse.catalog.loading import load
from benchhouse.schema.errors import BenchError

GOOD = """
from benchhouse import Deprecated, Metric, experiment

@experiment("{name}", version="{version}", metrics=[Metric(name="n", unit="1")])
def run(size: int = 1):
    "Does little."
    return {{"n": {answer}}}
"""


def good(name="good", version="1.0", answer=1):
    return GOOD.format(name=name, version=version, answer=answer)


@pytest.fixture
def listed(packages, tmp_path):
    """The strangers' experiments by name, looked up as a new process would."""

    def look():
        packages.forget()
        found = list_experiments(tmp_path / "cache")
        return [item for item in found if item.distribution != "benchhouse"]

    return look


def test_a_strangers_experiment_is_listed_with_what_it_declares(packages, listed):
    packages.add("pack", "pack_a", good(), "good = pack_a:run", version="2.3")
    (item,) = listed()
    assert (item.name, item.version, item.distribution, item.distribution_version) == ("good", "1.0", "pack", "2.3")
    assert item.description == "Does little."
    assert item.metrics[0]["name"] == "n"
    assert item.broken is None


BROKEN = (
    ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    ("import not_there_at_all", "ModuleNotFoundError"),
    ("import sys; sys.exit(4)", "SystemExit: 4"),
    ("import os; os._exit(3)", "its import ended the process"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "its import ended the process"),
    ("def broken(:", "SyntaxError"),
    ("run = 5", "is a int"),
    ("other = 5", "AttributeError"),
    ("run = []", "holds no experiment"),
    ("def run(x: 'Unknown'): ...", "inputs"),
    ("def run(workload): ...", "pydantic model"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
)


def test_broken_packages_are_listed_as_broken_and_harm_no_other(packages, listed):
    for number, (code, _) in enumerate(BROKEN):
        packages.add(f"bad{number}", f"pack_bad{number}", code, f"bad{number} = pack_bad{number}:run")
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    found = listed()
    items = {item.name: item for item in found}
    assert len(items) == len(BROKEN) + 1 and items["good"].broken is None
    for number, (code, words) in enumerate(BROKEN):
        assert words in items[f"bad{number}"].broken, code
        with pytest.raises(BenchError, match=f"'bad{number}' can't be used"):
            resolve(f"bad{number}", None, found)


@pytest.mark.serial
def test_an_import_that_hangs_is_ended_and_not_tried_again(packages, listed, monkeypatch):
    monkeypatch.setattr(listing, "IMPORT_TIMEOUT_S", 0.5)
    packages.add("bad", "pack_bad", "import time; time.sleep(60)", "bad = pack_bad:run")
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    bad, fine = listed()
    assert "did not finish within 0.5 s" in bad.broken
    assert fine.broken is None
    started = time.monotonic()
    assert listed()[0].broken == bad.broken
    assert time.monotonic() - started < 0.4


def test_an_import_that_prints_does_not_spoil_the_output(packages, capfd, listed):
    packages.add("pack", "pack_a", "print('noise')\n" + good(), "good = pack_a:run")
    assert listed()[0].broken is None
    out, err = capfd.readouterr()
    assert out == ""
    assert "noise" not in err  # on a busy machine, it says there what it waits for


def test_two_packages_that_claim_one_version_are_both_listed_and_neither_is_chosen(packages, listed, bench):
    packages.add("pack-a", "pack_a", good(), "good = pack_a:run")
    packages.add("pack-b", "pack_b", good(answer=2), "good = pack_b:run")
    assert [item.distribution for item in listed()] == ["pack-a", "pack-b"]
    with pytest.raises(BenchError, match=r"'good' version '1.0' is claimed by pack-a 1.0 and pack-b 1.0"):
        resolve("good", None, listed())
    assert bench("list", "experiments").out.count("claimed twice") == 2


def test_two_versions_are_installed_at_once_and_each_runs_its_own_code(packages, listed):
    packages.add("old", "pack_old", good(version="1.0", answer=1), "good = pack_old:run")
    packages.add("new", "pack_new", good(version="2.0", answer=2), "good = pack_new:run")
    answers = {version: load(resolve("good", version, listed()).ref())()["n"] for version in ("1.0", "2.0", None)}
    assert answers == {"1.0": 1, "2.0": 2, None: 2}


def test_one_entry_point_may_offer_a_list_or_a_module_or_a_plain_function(packages, listed):
    many = good() + "\n@experiment('more', version='7')\ndef more(): ...\nboth = [run, more]\n"
    packages.add("a", "pack_a", many, "a = pack_a:both")
    packages.add("b", "pack_b", many.replace("good", "good2").replace("more", "more2"), "b = pack_b")
    packages.add("c", "pack_c", "def f(n: int = 2):\n    return {'x': n}\n", "plain = pack_c:f", version="3.1")
    packages.add("d", "pack_d", "def f(n: int = 2):\n    return {'x': n}\n", "pinned@2024-05 = pack_d:f")
    found = {item.name: item.version for item in listed()}
    assert found == {
        "good": "1.0", "more": "7", "good2": "1.0", "more2": "7", "plain": "3.1", "pinned": "2024-05",
    }  # fmt: skip
    plain = load(resolve("plain", None, listed()).ref())
    assert plain(4) == {"x": 4}
    assert not plain.strict_metrics


def test_a_deprecated_experiment_is_listed_marked_and_chosen_last(packages, listed, bench, tmp_path):
    said = "deprecated=Deprecated(reason='too slow', replaced_by='fast')"
    old = good(version="9").replace("metrics=", f"{said}, metrics=")
    packages.add("old", "pack_old", old, "good = pack_old:run")
    assert "deprecated" in bench("list", "experiments").out
    assert "DEPRECATED: too slow; use fast" in bench("show", "good").out
    (tmp_path / "s.yaml").write_text("scenario: s\nexperiment: good\n")
    assert "good 9 is deprecated: too slow; use fast" in bench("plan", "s.yaml").err
    packages.add("new", "pack_new", good(version="1"), "good = pack_new:run")
    assert resolve("good", None, listed()).version == "1"


def test_the_description_is_remembered(packages, listed, monkeypatch):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    first = listed()
    monkeypatch.setattr(listing, "describe_apart", lambda missing: pytest.fail(f"described again: {missing}"))
    assert listed() == first


def test_a_changed_module_is_described_again(packages, listed):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    assert listed()[0].version == "1.0"
    (packages.folder / "pack_a.py").write_text(good(version="1.0.1"))
    assert listed()[0].version == "1.0.1"


def test_a_change_in_a_module_behind_the_named_one_is_noticed(packages, listed):
    inner = packages.folder / "pack_deep" / "inner.py"
    inner.parent.mkdir()
    inner.write_text(good())
    (inner.parent / "__init__.py").write_text("from pack_deep.inner import run\n")
    packages.add("pack", "unused", "", "good = pack_deep:run")
    assert listed()[0].version == "1.0"
    inner.write_text(good(version="1.0.1"))
    assert listed()[0].version == "1.0.1"


def test_what_raised_is_tried_again_once_its_cause_is_gone(packages, listed):
    packages.add("pack", "pack_a", "import pack_helper\n" + good(), "good = pack_a:run")
    assert "No module named 'pack_helper'" in listed()[0].broken
    (packages.folder / "pack_helper.py").write_text("")
    assert listed()[0].broken is None


@pytest.mark.starts
def test_a_spoilt_cache_only_costs_time(packages, listed, tmp_path):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    listed()
    (path,) = (tmp_path / "cache").glob("experiments-*.json")
    for content in ("", "{", "[]", '{"x": 1}', "\x00"):
        path.write_text(content)
        assert listed()[0].name == "good", content


def test_a_cache_that_can_not_be_written_only_costs_time(packages, tmp_path):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    (tmp_path / "file").write_text("")
    assert any(item.name == "good" for item in list_experiments(tmp_path / "file" / "cache"))


@pytest.mark.serial
def test_200_entry_points_of_200_packages_are_listed(packages, listed):
    for number in range(200):
        packages.add(f"pack{number}", f"pack_{number}", good(f"exp.{number}"), f"e{number} = pack_{number}:run")
    assert len(listed()) == 200
    started = time.process_time()
    listed()
    assert time.process_time() - started < 0.5


def test_a_damaged_distribution_does_not_hide_the_others(packages, listed):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    packages.add("odd", "pack_odd", good("odd"), "odd = pack_odd:run")
    (packages.folder / "odd-1.0.dist-info" / "METADATA").unlink()
    assert {item.name for item in listed()} == {"good", "odd"}


def test_a_package_that_changed_under_a_plan_is_refused(packages, listed):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    ref = listed()[0].ref()
    (packages.folder / "pack_a.py").write_text(good(version="2.0.0"))
    packages.forget()
    with pytest.raises(BenchError, match=r"offers good 2.0.0, not good 1.0"):
        load(ref)


def test_an_unknown_experiment_is_answered_with_the_nearest(packages, listed):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    with pytest.raises(BenchError, match="did you mean 'good'"):
        resolve("goood", None, listed())
    with pytest.raises(BenchError, match=r"installed: 1\.0"):
        resolve("good", "3", listed())


def test_a_broken_version_points_to_one_that_works(packages, listed):
    packages.add("old", "pack_old", good(version="1.0"), "good = pack_old:run")
    packages.add("new", "pack_new", "raise OSError", "good@2.0 = pack_new:run")
    with pytest.raises(BenchError, match=r"reinstall its package, new 1.0, or ask for version 1.0"):
        resolve("good", None, listed())


def test_versions_of_any_scheme_have_an_order():
    in_order = ["0.9", "1.0.dev1", "1.0a1", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.2", "1.10", "2024-5", "2024-5-1"]
    assert sorted(set(in_order), key=version_key) == in_order


def test_a_plug_that_is_missing_or_offered_twice_is_refused(packages):
    assert find_plug("executors", "local").object == "benchhouse.executors.local:LocalExecutor"
    with pytest.raises(BenchError, match=r"no executor named 'locl' is installed\ndid you mean 'local'"):
        plug("executors", "locl")
    packages.add("pack", "pack_a", "", "local = pack_a:X", group="executors")
    with pytest.raises(BenchError, match=r"2 packages offer the executor 'local': benchhouse 0.1.0, pack 1.0"):
        plug("executors", "local")


def test_a_distribution_on_the_path_twice_counts_once(packages, monkeypatch):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    monkeypatch.syspath_prepend(str(packages.folder) + "/.")
    packages.forget()
    assert [entry.name for entry in entries("experiments")].count("good") == 1


def test_another_process_sees_the_same(packages):
    """Nothing of the above is an effect of one process's memory."""
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    packages.add("bad", "pack_bad", "import os; os._exit(3)", "bad = pack_bad:run")
    command = [sys.executable, "-m", "benchhouse", "list", "experiments", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    found = {item["name"]: item["broken"] for item in json.loads(done.stdout)}
    assert found["good"] is None
    assert "ended the process" in found["bad"]


def test_two_processes_that_see_different_packages_do_not_spoil_each_others_cache(packages, listed, tmp_path):
    packages.add("pack", "pack_a", good(), "good = pack_a:run")
    (tmp_path / "log").mkdir()
    (packages.folder / "pack_a.py").write_text(
        f"import uuid, pathlib\npathlib.Path({str(tmp_path / 'log')!r}, uuid.uuid4().hex).touch()\n" + good()
    )
    assert [item.name for item in listed()] == ["good"]
    packages.add("other", "pack_b", good("other"), "other = pack_b:run")
    assert {item.name for item in listed()} == {"good", "other"}
    for path in sorted((packages.folder / "pack-1.0.dist-info").iterdir()):
        path.rename(tmp_path / path.name)  # as a process that does not have it on its path
    packages.add("third", "pack_c", good("third"), "third = pack_c:run")
    assert {item.name for item in listed()} == {"other", "third"}
    for name in ("METADATA", "entry_points.txt"):
        (tmp_path / name).rename(packages.folder / "pack-1.0.dist-info" / name)

    assert {item.name for item in listed()} == {"good", "other", "third"}
    assert len(list((tmp_path / "log").iterdir())) == 1  # described once


@pytest.mark.starts
def test_a_killed_reader_leaves_nobody_who_describes(packages, tmp_path):
    mark = tmp_path / "pid"
    code = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(60)"
    packages.add("pack", "pack_a", code, "good = pack_a:run")
    reader = subprocess.Popen([sys.executable, "-m", "benchhouse", "list", "experiments"], stderr=subprocess.DEVNULL)
    wait_until(lambda: mark.is_file() and mark.read_text(), "an import that hangs")
    reader.kill()
    reader.wait()
    wait_until(lambda: not Path("/proc", mark.read_text()).exists(), "the end of the import", 20)
