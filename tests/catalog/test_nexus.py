"""Reading a nexus: the published layout, what is broken beside what is good, and nothing from outside of it."""

import json
import re

import pytest

from benchhouse.catalog.nexus import load_nexus, load_registrations, model_of, target_inputs
from benchhouse.catalog.nexus_requirements import requirements
from benchhouse.catalog.nexus_root import find_nexus, holds_models_benchmark
from benchhouse.schema.ado import listed_name
from benchhouse.schema.errors import BenchError

NEXUS = """\
package:
  name: terra
  benchmark_packages:
    - requirement_specifier: ./packages/terra/benchmark_packages/seg
      experiments: [seg-eval]
"""
SPACE = """\
entitySpace: [{identifier: dataset, propertyDomain: {values: [sen1floods11]}}]
experiments:
  - {actuatorIdentifier: custom_experiments, experimentIdentifier: seg-eval, experimentVersion: 2.0}
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path):
    home = tmp_path / "packages" / "terra"
    write(home / "nexus.yaml", NEXUS)
    write(home / "skills" / "notes.md", "not read")
    write(home / "models" / "prithvi" / "model.yaml", "model: {id: ibm/prithvi, owner: me}\n")
    write(home / "models" / "prithvi" / "benchmark_instances" / "flood" / "space.yaml", SPACE)
    write(home / "benchmark_instances" / "wait" / "benchmark.yaml", "benchmark: wait\nexperiment: command\n")
    return tmp_path


def broken(root):
    return "\n".join(item.error.message for item in load_nexus(root).broken)


def test_packages_models_and_benchmarks_are_read(root):
    nexus = load_nexus(root)
    assert not nexus.broken
    wait, flood = nexus.instances()
    assert (wait.id, wait.kind, wait.target) == ("terra/wait", "benchmark", "")
    assert (flood.id, flood.kind, flood.target) == ("terra/prithvi/flood", "space", "ibm/prithvi")
    (reference,) = flood.experiments
    assert (reference.actuator, reference.name, reference.version) == ("custom_experiments", "seg-eval", "2.0")
    assert [model.entry.owner for model in nexus.package("terra").models] == ["me"]
    assert nexus.package("terra").registers(reference)
    assert load_registrations(root) == [("terra", "seg-eval")]


def test_a_nexus_is_found_upward_and_where_it_is_said(root, tmp_path_factory):
    deep = root / "packages" / "terra" / "models" / "prithvi"
    assert find_nexus(None, {}, deep) == root
    elsewhere = tmp_path_factory.mktemp("empty")
    (elsewhere / "packages").mkdir()  # anybody's
    assert find_nexus(None, {}, elsewhere) is None
    assert find_nexus(None, {"BENCH_NEXUS": str(root)}, elsewhere) == root
    assert find_nexus(str(elsewhere), {"BENCH_NEXUS": str(root)}, elsewhere) == elsewhere
    with pytest.raises(BenchError, match="has no folder packages/"):
        find_nexus(str(deep), {}, elsewhere)


def test_the_model_of_a_benchmarks_folder_is_known(root):
    home = root / "packages" / "terra" / "models" / "prithvi" / "benchmark_instances"
    entry, document = model_of(home / "flood")
    assert entry.id == "ibm/prithvi" and document.path.endswith("model.yaml")
    for other in (home, root, root / "packages" / "terra" / "benchmark_instances" / "wait"):
        assert not holds_models_benchmark(other)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("nexus.yaml", "package: {nam: terra}\n", r"nexus.yaml:1:11: unknown key 'nam'"),
        ("nexus.yaml", "package: {name: other}\n", "in the folder 'terra' calls itself 'other'"),
        ("nexus.yaml", "package: [\n", "nexus.yaml:1:11: not valid YAML"),
        ("models/prithvi/model.yaml", "model: {owner: me}\n", "model.yaml:1:1: missing key 'id'"),
        ("models/none/usage.md", "", "no such file"),
        ("benchmark_instances/wait/benchmark.yaml", "benchmark: late\nexperiment: x\n", "calls itself 'late'"),
        ("benchmark_instances/wait/space.yaml", SPACE, "there is both space.yaml and benchmark.yaml"),
        ("benchmark_instances/empty/readme.md", "", "there is none of them"),
        ("models/prithvi/benchmark_instances/flood/space.yaml", "experiments: []\n", "space.yaml:1:14: "),
        ("models/prithvi/benchmark_instances/b/benchmark.yaml", "benchmark: b\nexperiment: x\n", "of one model"),
        ("models/prithvi/benchmark_instances/s/scenario.yaml", "experiment: x\n", "this is no scenario"),
        ("benchmark_instances/a b/space.yaml", SPACE, "'a b' can't be a name"),
    ],
)  # fmt: skip
def test_what_is_broken_is_named_and_spoils_no_other_package(root, path, text, said):
    write(root / "packages" / "good" / "nexus.yaml", "package: {name: good}\n")
    write(root / "packages" / "terra" / path, text)
    assert re.search(said, broken(root)), broken(root)
    assert load_nexus(root).package("good")


@pytest.mark.parametrize("name", ["nexus.yaml", "models", "models/prithvi/model.yaml", "benchmark_instances/wait"])
def test_a_link_out_of_the_package_is_not_followed(root, tmp_path_factory, name):
    outside = tmp_path_factory.mktemp("outside")
    path = root / "packages" / "terra" / name
    path.rename(outside / "moved")
    path.symlink_to(outside / "moved")
    assert "is a link that leads out of" in broken(root)
    moved = root / "packages" / "linked"
    moved.symlink_to(outside)
    assert "linked is a link that leads out of" in broken(root)


def test_bindings_say_which_input_is_the_target(root):
    binding = (
        "logicalBenchmark: {benchmarkIdentifier: seg, target: {identifier: model}, metrics: [iou]}\n"
        "bindings:\n- benchmarkIdentifier: seg\n  targetMapping: net\n"
        "  experiment: {actuatorIdentifier: custom_experiments, experimentIdentifier: seg-eval}\n"
    )
    write(root / "benchmarks" / "seg.yaml", binding)
    write(root / "benchmarks" / "broken.yaml", "logicalBenchmark: 3\n")
    assert target_inputs(root) == {listed_name("custom_experiments", "seg-eval"): "net"}
    assert listed_name("benchhouse", "command") == "command"


def specifiers(root, *texts):
    listed = "".join(f"    - requirement_specifier: {json.dumps(text)}\n" for text in texts)
    write(root / "packages" / "terra" / "nexus.yaml", f"package:\n  name: terra\n  benchmark_packages:\n{listed}")
    return requirements(load_nexus(root).package("terra"), root)


def test_requirements_are_names_urls_and_folders_of_the_nexus(root):
    folder = root / "packages" / "terra" / "benchmark_packages" / "seg"
    write(folder / "pyproject.toml", '[project]\nname = "Seg_Eval"\ndependencies = [\n  "numpy<2",\n]\n')
    texts = ("numpy>=2,<3", "ray[default]", "git+https://h/x.git@v1", "evals @ git+ssh://git@h/x.git",
             "./packages/terra/benchmark_packages/seg")  # fmt: skip
    good, problems = specifiers(root, *texts)
    assert not problems
    assert [item.kind for item in good] == ["index", "index", "url", "url", "path"]
    assert [item.name for item in good] == ["numpy", "ray", "", "evals", "Seg_Eval"]
    assert good[-1].wants("numpy") == ("numpy<2", f"{folder / 'pyproject.toml'}:4")


@pytest.mark.parametrize(
    "text", ["-r /etc/passwd", "--index-url=http://x", "a\nb", "../outside", "/etc", "~/x", "./nowhere", "a b", "x @ y"]
)
def test_what_is_no_requirement_or_leads_out_is_refused_with_its_line(root, text):
    write(root.parent / "outside" / "pyproject.toml", "")
    good, (problem,) = specifiers(root, "numpy", text)
    assert [item.text for item in good] == ["numpy"]
    assert problem.line == 5
