"""Site profiles: those that are shipped, and what a profile may not say."""

import jsonschema
import pytest
from tables import check_table

from benchhouse.api.workspace import Workspace
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.sites.profiles import SHIPPED, load_site, shipped


@check_table("name", ["lab", "local", "meluxina"])
def test_a_shipped_profile_is_valid_and_named_as_its_file(name, tmp_path):
    path = shipped()[name]
    assert load_site(path).site == name == path.stem
    jsonschema.validate(load_yaml(path).data, Workspace(tmp_path).catalog.json_schema("site"))


def test_meluxina_says_what_nobody_has_confirmed():
    site = load_site(SHIPPED / "meluxina.yaml")
    assert set(site.slurm.partitions) == {"cpu", "gpu", "fpga", "largemem"}
    assert site.slurm.partitions["gpu"].gpus == 4 and site.slurm.gpu_partition == "gpu"
    assert site.modules == ("Apptainer",) and site.runtime == "apptainer" and not site.network.egress
    for key in ("slurm.account", "slurm.partitions", "slurm.qualities", "modules", "network.egress", "NCCL_IB_HCA"):
        assert any(key in line for line in site.to_confirm), key


@check_table(
    "text, said",
    [
        ("slurm: {partition: 'gpu; rm -rf /'}", "is not one plain word"),
        ("slurm: {flags: ['--x=$(id)']}", "is not a flag such as"),
        ("modules: ['Apptainer && id']", "is not one plain word"),
        ("slurm: {partitions: {cpu: {cpu: 8}}}", "unknown key 'cpu'"),
        ("slurm: {qualities: {dev: {max_time: soon}}}", "is not a duration"),
        ("quotas: {/work: {size: much}}", "is not a size"),
    ],
)
def test_a_bad_profile_is_refused_with_its_place(tmp_path, text, said):
    path = tmp_path / "site.yaml"
    path.write_text(f"site: x\n{text}\n")
    with pytest.raises(ProblemsError, match=rf"site.yaml:2:\d+: .*{said}"):
        load_site(path)
