"""Experiments that were written for ado: found, described and run without ado on the command line's path."""

import contextvars
import json
import subprocess
import sys

import pytest
from ado_packages import DECORATOR, install, install_all
from pydantic import ValidationError

from benchhouse.catalog import ado_experiments, listing
from benchhouse.catalog.ado import declare, input_model, metric_name, resources_of
from benchhouse.catalog.entries import ado_entries, installed
from benchhouse.catalog.listing import list_experiments, resolve
from benchhouse.schema.errors import BenchError
from benchhouse.schema.progress import show_by

pytestmark = pytest.mark.slow  # imports ado


def needed(identifier, **domain):
    return {"identifier": identifier, "required": True, "default": None, "domain": domain}


STEPS = {"variableType": "DISCRETE_VARIABLE_TYPE"}


def test_an_input_takes_what_its_property_allows_and_nothing_else():
    for domain, good, bad in (
        ({"variableType": "CATEGORICAL_VARIABLE_TYPE", "values": ["a", "b"]}, "a", "c"),
        (STEPS | {"values": [8, 16]}, 16, 12),
        (STEPS | {"values": [0.5, 1]}, 0.5, 0.7),
        (STEPS | {"domainRange": [0, 10], "interval": 1}, 9, 10),
        (STEPS | {"domainRange": [0, 10], "interval": 1}, 0, -1),
        (STEPS | {"domainRange": [1, 10], "interval": 3}, 7, 6),
        (STEPS | {"domainRange": [0, 1], "interval": 0.1}, 0.3, 0.35),
        (STEPS | {"interval": 1}, 10**9, 0.5),
        ({"variableType": "CONTINUOUS_VARIABLE_TYPE", "domainRange": [0, 1]}, 0.25, 1.0),
        ({"variableType": "BINARY_VARIABLE_TYPE"}, True, "maybe"),
        ({"variableType": "OPEN_CATEGORICAL_VARIABLE_TYPE", "values": ["x"]}, "another", 3),
    ):
        model = input_model("custom_experiments.x", [needed("n", **domain)])
        assert model.model_validate({"n": good}).n == good, domain
        with pytest.raises(ValidationError):
            model.model_validate({"n": bad})
            pytest.fail(f"{domain} takes {bad!r}")


def test_an_input_may_have_any_name_and_a_default():
    inputs = [needed("batch-size", variableType="UNKNOWN_VARIABLE_TYPE"), needed("json", **STEPS, interval=1)]
    inputs.append({"identifier": "mode", "required": False, "default": "plain", "domain": {}})
    read = input_model("halver.half", inputs).model_validate({"batch-size": 3, "json": 1})
    assert read.model_dump(by_alias=True) == {"batch-size": 3, "json": 1, "mode": "plain"}


@pytest.mark.parametrize(
    ("options", "resources", "words"),
    [
        ({}, {"cpus": 1, "gpus": 0, "memory": None}, []),
        ({"num_cpus": 4, "num_gpus": 1}, {"cpus": 4, "gpus": 1, "memory": None}, []),
        ({"num_cpus": 0.5, "memory": 10**9}, {"cpus": 1, "gpus": 0, "memory": 10**9}, ["rounded up"]),
        ({"runtime_env": {"pip": ["x"]}, "wrong": 1}, {"cpus": 1, "gpus": 0, "memory": None}, ["runtime_env, wrong"]),
    ],
)
def test_rays_options_become_resources_and_unknown_ones_are_said(options, resources, words):
    found, notes = resources_of(options)
    assert found == {"nodes": 1, "ntasks": None, "gres": None} | resources
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_an_output_of_any_name_has_a_metric():
    assert [metric_name(name) for name in ("qps", "tokens/s", "99th", "größe")] == ["qps", "tokens_s", "m99th", "gr__e"]


def test_what_is_only_described_can_not_be_called():
    told = {"name": "custom_experiments.x", "version": "1", "inputs": [], "metrics": []}
    with pytest.raises(BenchError, match="only described"):
        declare(told).call({}, {}, None)


PART = (
    DECORATOR
    + """
from toybench.shared import shared

@custom_experiment(output_property_identifiers=["out"], required_properties=[number("n", values=[1, 2])])
def {name}(n: int):
    return {{"out": n}}
"""
)


def install_toybench(site):
    """A package of four modules, of which three are entry points that share the fourth one."""
    (site / "toybench").mkdir(parents=True)
    (site / "toybench" / "__init__.py").write_text("")
    for name in ("first", "second", "third"):
        (site / "toybench" / f"{name}.py").write_text(PART.format(name=name))
    shared = PART.replace("from toybench.shared import shared\n", "").format(name="shared")
    (site / "toybench" / "shared.py").write_text(shared)
    lines = "[ado.custom_experiments]\nc = toybench.third\na = toybench.first\nb = toybench.second:second\n"
    install(site, "toybench", "unused", "", lines, "0.3.1")


LONE = """
from ado.modules.actuators.base import ActuatorBase
from ado_halver import Halving


class Lone(ActuatorBase):
    identifier = "lone"

    def submit(self, *given, **more): ...

    @classmethod
    def catalog(cls, actuator_configuration=None):
        return Halving.catalog()
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The packages, installed once, and the cache in which they are described once."""
    root = tmp_path_factory.mktemp("ado")
    install_all(root / "site")
    broken = DECORATOR + "raise OSError('no such device')\n"
    install(root / "site", "ado-broken", "ado_broken", broken, "[ado.custom_experiments]\nbad = ado_broken\n")
    install_toybench(root / "site")
    install(root / "site", "ado-lone", "ado_lone", LONE, "[ado.actuators]\nlone = ado_lone:Lone\n")
    return root


@pytest.fixture
def shelved(shelf, monkeypatch):
    monkeypatch.setenv("BENCH_CACHE_DIR", str(shelf / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(shelf / "site"))
    monkeypatch.syspath_prepend(shelf / "site")
    installed.cache_clear()
    yield shelf
    installed.cache_clear()


def ados(folder):
    return {(item.name, item.version): item for item in list_experiments(folder / "cache") if item.bridge == "ado"}


def test_what_is_installed_for_ado_is_listed_with_its_own_package(shelved):
    found = ados(shelved)
    packages = {key: f"{item.distribution} {item.distribution_version}" for key, item in found.items()}
    several = [(*key, found[key].object) for key, package in packages.items() if package == "toybench 0.3.1"]
    assert several == [
        (f"custom_experiments.{name}", "0.3.1", f"toybench.{name}:{name}")
        for name in ("first", "second", "shared", "third")
    ], "each experiment once, however many entry points lead to it"
    assert {key: package for key, package in packages.items() if not package.startswith("toybench")} == {
        ("custom_experiments.doubling", "1.0.0"): "ado-one 0.3",
        ("custom_experiments.doubling", "2.0.0"): "ado-two 0.4",
        ("custom_experiments.raising", "1.0.0"): "ado-one 0.3",
        ("custom_experiments.needing", "0.3"): "ado-one 0.3",
        ("halver.halve", "0.1.0"): "ado-halver 0.5",
        ("bad", "1.0"): "ado-broken 1.0",
        ("lone.halve", "0.1.0"): "ado-lone 1.0",
    }
    needing = found["custom_experiments.needing", "0.3"]
    assert needing.resources["cpus"] == 2
    assert needing.notes == ["a trial has whole cores and GPUs: num_cpus of ray_options is rounded up"]
    assert found["bad", "1.0"].broken == "OSError: no such device"
    assert resolve("custom_experiments.doubling", None, list(found.values())).version == "2.0.0"


def test_an_actuator_that_only_ado_can_run_is_listed_and_refused_with_where_to_run_it(shelved, bench, tmp_path):
    (tmp_path / "s.yaml").write_text("scenario: s\nexperiment: lone.halve\n")
    done = bench("run", "s.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "s.yaml:2:13: " in done.err
    assert "it is no StandardActuator" in done.err and "ado create operation" in done.err


def test_what_can_not_be_loaded_is_told_to_who_asks_for_it_by_its_full_name(shelved):
    with pytest.raises(BenchError) as found:
        resolve("custom_experiments.bad", None, list_experiments(shelved / "cache"))
    assert "'bad' of ado-broken can't be loaded: OSError: no such device" in found.value.hint


def test_who_waits_for_ado_is_told_so_before_it_is_loaded(shelved, tmp_path, monkeypatch):
    said: list[str] = []

    def fake_describe(entries):
        assert said == ["looking at newly installed packages of ado, once ..."]
        raise BenchError("far enough")

    monkeypatch.setattr(listing, "describe_apart", fake_describe)

    def look():
        show_by(said.append)
        with pytest.raises(BenchError, match="far enough"):
            list_experiments(tmp_path)

    contextvars.copy_context().run(look)


def test_our_own_actuator_is_not_listed_back(shelved):
    assert "benchhouse" not in {entry.distribution for entry in ado_entries()}


def test_what_was_described_is_not_described_again_even_where_it_is_broken(shelved, monkeypatch):
    before = ados(shelved)
    monkeypatch.setattr(listing, "describe_apart", lambda missing: pytest.fail(f"described again: {missing}"))
    assert ados(shelved) == before


def test_the_command_line_lists_shows_and_plans_without_importing_ado(shelved, tmp_path):
    ados(shelved)
    (tmp_path / "s.yaml").write_text(
        "scenario: s\nexperiment: custom_experiments.doubling\nversion: 1.0.0\nworkload: {n: [1, 2]}\n"
    )
    code = (
        "import sys\nfrom benchhouse.cli import main\n"
        "for words in (['list', 'experiments'], ['show', 'halver.halve'], ['plan', 's.yaml']):\n"
        "    sys.argv = ['bench', *words]\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        assert not ended.code, words\n"
        "assert not {'ado', 'ray', 'ado_one'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "written for ado: ado_halver:Halving" in done.stdout
    assert "2 = 2 points" in done.stdout


def test_an_import_that_hangs_is_named_and_harms_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "IMPORT_TIMEOUT_S", 2.0)
    site = tmp_path / "site"
    install(site, "slow", "pack_slow", "import time; time.sleep(60)", "[ado.custom_experiments]\nslow = pack_slow\n")
    plain = "def run(n: int = 1):\n    return {'n': n}\n"
    install(site, "quick", "pack_quick", plain, "[benchhouse.experiments]\nquick = pack_quick:run\n")
    monkeypatch.syspath_prepend(site)
    installed.cache_clear()
    found = {item.name: item for item in list_experiments(tmp_path / "cache")}
    installed.cache_clear()
    assert "did not finish within 2 s" in found["slow"].broken
    assert found["quick"].broken is None


def test_without_ado_its_experiments_say_what_to_install(monkeypatch):
    def missing(entry):
        raise ModuleNotFoundError("No module named 'ado'", name="ado")

    monkeypatch.setattr(ado_experiments, "describe", missing)
    entry = listing.EntryPointLine("one", "ado_one", "ado-one", "0.3", "ado.custom_experiments")
    (item,) = listing._describe(entry)["items"]
    assert item["broken"] == "ado is not installed: pip install 'benchhouse[ado]'"


SPACE = """\
entitySpace:
  - identifier: n
    propertyDomain: {values: [1, 2]}
experiments:
  - {actuatorIdentifier: custom_experiments, experimentIdentifier: doubling, experimentVersion: 1.0.0}
  - {actuatorIdentifier: custom_experiments, experimentIdentifier: doubling, experimentVersion: 2.0.0}
  - {actuatorIdentifier: custom_experiments, experimentIdentifier: raising}
  - {actuatorIdentifier: halver, experimentIdentifier: halve}
"""


def test_a_space_of_ado_runs_with_the_asked_versions_and_keeps_what_ado_drops(shelved, bench, tmp_path):
    (tmp_path / "all.yaml").write_text(SPACE)
    ran = bench("run", "all.yaml")
    assert ran.code == 1, ran.err  # one point of `raising` does
    metas = {}
    for path in (tmp_path / "results").glob("*/*/meta.json"):
        meta, spec = (json.loads((path.parent / name).read_bytes()) for name in ("meta.json", "trial.json"))
        metas[spec["scenario"].removeprefix("all."), spec["parameters"]["n"]] = meta
    assert len(metas) == 8
    first, second = (metas[f"custom_experiments.doubling-{version}", 2] for version in ("1.0.0", "2.0.0"))
    assert (first["custom"], second["custom"]) == ({"by": "one", "seen": [2]}, {"by": "two", "seen": [2]})
    assert (first["experiment"]["distribution"], second["experiment"]["distribution"]) == ("ado-one", "ado-two")
    failure = metas["custom_experiments.raising", 1]["failure"]
    assert (failure["code"], failure["message"]) == ("ArithmeticError", "1 is odd")
    assert "in raising" in failure["traceback"]
    halved = metas["halver.halve", 1]
    assert (halved["outcome"], halved["custom"]) == ("succeeded", {"rest": 1})
    assert bench("verify").code == 0


def test_what_does_not_fit_a_property_is_told_at_its_place(shelved, bench, tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "scenario: s\nexperiment: custom_experiments.needing\n"
        "workload: {n: 100, kind: c, share: 0.5, batch: 12, flags: true}\n"
    )
    told = bench("validate", "bad.yaml")
    assert told.code == 2
    for words in ("3:15: ", "3:26: ", "3:48: ", "did you mean 'flag'?"):
        assert words in told.err, told.err
