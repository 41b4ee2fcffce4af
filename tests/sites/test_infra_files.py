"""The files of `bench infra`: they parse, every reference resolves, every name is one that the provider publishes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.sites.infra.providers import TEMPLATES
from benchhouse.sites.profiles import load_site

hcl2 = pytest.importorskip("hcl2")

PROVIDER = json.loads((Path(__file__).parents[1] / "data" / "aws_provider.json").read_text())["schema"]
META = {"count", "for_each", "depends_on", "lifecycle", "__is_block__", "__comments__"}
# Fields of kind.x-k8s.io/v1alpha4, from kind's pkg/apis/config/v1alpha4/types.go.
KIND = {
    "cluster": {"kind", "apiVersion", "name", "nodes", "networking", "featureGates", "runtimeConfig"},
    "node": {"role", "image", "labels", "extraMounts", "extraPortMappings", "kubeadmConfigPatches"},
    "mount": {"containerPath", "hostPath", "readOnly", "selinuxRelabel", "propagation"},
}


@pytest.fixture
def made(tmp_path):
    def make(provider, **settings):
        infra = Workspace(tmp_path).infra
        return infra.create(infra.plan(provider, "lab", output=f"infra/{provider}", **settings)).folder

    return make


def blocks():
    """(address, body) of each resource and data source."""
    for file in sorted((TEMPLATES / "aws").glob("*.tf")):
        document = hcl2.loads(file.read_text())
        for kind in ("resource", "data"):
            for item in document.get(kind, ()):
                for type_, named in item.items():
                    for name, body in named.items():
                        yield (kind, type_.strip('"'), name.strip('"')), body


@pytest.mark.slow
def test_every_argument_is_one_of_the_providers_schema_and_none_that_is_required_is_missing():
    def check(where, body, schema):
        given = set(body) - META
        known = {*schema["required"], *schema["optional"]}
        assert given <= known, f"{where}: {given - known}"
        assert set(schema["required"]) <= given, f"{where} lacks {set(schema['required']) - given}"
        for name in given & schema["blocks"].keys():
            for inner in body[name] if isinstance(body[name], list) else [body[name]]:
                check(f"{where}.{name}", inner, schema["blocks"][name])

    seen = 0
    for (kind, type_, name), body in blocks():
        check(f"{type_}.{name}", body, PROVIDER[f"{kind}.{type_}"])
        seen += 1
    assert seen > 30


def test_every_reference_resolves_to_something_declared_and_to_an_attribute_that_it_has():
    declared = {address for address, _ in blocks()}
    texts = {file: re.sub(r"#.*", "", file.read_text()) for file in (TEMPLATES / "aws").glob("*.tf")}
    variables = set(re.findall(r'^variable "(\w+)"', texts[TEMPLATES / "aws" / "variables.tf"], re.M))
    used = {name for text in texts.values() for name in re.findall(r"\bvar\.(\w+)", text)}
    assert used == variables
    references = 0
    for text in texts.values():
        for data, type_, name, attribute in re.findall(r"\b(data\.)?(aws_\w+)\.(\w+)(?:\[[^\]]*\])?(?:\.(\w+))?", text):
            kind = "data" if data else "resource"
            assert (kind, type_, name) in declared
            assert not attribute or attribute in PROVIDER[f"{kind}.{type_}"]["attributes"], (
                f"{type_}.{name}.{attribute}"
            )
            references += 1
    assert references > 40


def test_what_was_asked_for_fills_exactly_the_variables_that_have_no_default(made):
    folder = made("aws", nodes="1..8", gpu_nodes="0..2", instance_type="c6i.4xlarge", region="eu-west-1")
    values = json.loads((folder / "terraform.tfvars.json").read_text())
    variables = hcl2.loads((folder / "variables.tf").read_text())["variable"]
    open_ = {name.strip('"') for item in variables for name, body in item.items() if "default" not in body}
    assert values.keys() == open_
    assert values["nodes"] == {"type": "c6i.4xlarge", "min": 1, "max": 8} and values["gpu_nodes"]["max"] == 2
    assert len(f"{'n' * 32}-evidence-{'0' * 8}") <= 63


def test_rights_are_few():
    text = (TEMPLATES / "aws" / "iam.tf").read_text()
    actions = set(re.findall(r'"((?:s3|autoscaling|ec2|eks|iam|sts):[^"]+)"', text))
    assert not [action for action in actions if "*" in action or "Delete" in action or action.startswith("iam:")]
    body = dict(blocks())[("data", "aws_iam_policy_document", "autoscaler")]
    free = [item for item in body["statement"] if item["resources"] == ['"*"'] and "condition" not in item]
    assert all(re.search(r":(Describe|Get)", action) for item in free for action in item["actions"])


def test_the_clusters_yaml_reads_back_and_names_the_cluster(made):
    folder = made("aws", gpu_nodes="0..2")
    documents = [item for file in folder.glob("*.yaml") for item in yaml.safe_load_all(file.read_text())]
    kinds = [item["kind"] for item in documents if "kind" in item]
    assert {"Namespace", "ServiceAccount", "Deployment", "DaemonSet", "ClusterRole"} <= set(kinds)
    deployment = next(item for item in documents if item.get("kind") == "Deployment")
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert (
        "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/lab" in command
    )
    minor = re.search(r'default\s+= "1\.(\d+)"', (folder / "variables.tf").read_text())[1]
    assert f":v1.{minor}." in deployment["spec"]["template"]["spec"]["containers"][0]["image"]


def test_pods_of_benchmarks_have_the_account_that_iam_gives_rights_to(made):
    folder = made("aws")
    site = load_site(folder / "site.yaml")
    association = dict(blocks())[("resource", "aws_eks_pod_identity_association", "evidence")]
    pair = (association["namespace"].strip('"'), association["service_account"].strip('"'))
    assert pair == (site.kubernetes.namespace, site.kubernetes.service_account)
    assert site.kubernetes.bucket == f"s3://{json.loads((folder / 'terraform.tfvars.json').read_text())['bucket']}/runs"


def test_kinds_configuration_has_fields_that_kind_knows_and_the_workspace_on_every_worker(made, tmp_path):
    folder = made("kind", nodes=3)
    config = yaml.safe_load((folder / "kind.yaml").read_text())
    assert config.keys() <= KIND["cluster"] and config["apiVersion"] == "kind.x-k8s.io/v1alpha4"
    workers = [node for node in config["nodes"] if node["role"] == "worker"]
    assert len(workers) == 3 and len(config["nodes"]) == 4
    for node in config["nodes"]:
        assert node.keys() <= KIND["node"]
        assert all(mount.keys() <= KIND["mount"] for mount in node.get("extraMounts", ()))
    site = load_site(folder / "site.yaml")
    assert site.executor == "kubernetes" and site.kubernetes.context == "kind-lab"
    assert site.kubernetes.volume.path == str(tmp_path) == workers[0]["extraMounts"][0]["containerPath"]
    objects = {item["kind"]: item for item in yaml.safe_load_all((folder / "kubernetes.yaml").read_text())}
    assert objects["PersistentVolume"]["spec"]["hostPath"]["path"] == str(tmp_path)
    assert objects["PersistentVolumeClaim"]["metadata"]["name"] == site.kubernetes.volume.claim


def test_a_workspace_with_signs_of_yaml_in_its_path_stays_what_it_is(tmp_path):
    odd = tmp_path / 'a: "b" #c\'d'
    odd.mkdir()
    infra = Workspace(odd).infra
    folder = infra.create(infra.plan("kind", "lab")).folder
    config = yaml.safe_load((folder / "kind.yaml").read_text())
    assert config["nodes"][1]["extraMounts"][0]["hostPath"] == str(odd)
    with pytest.raises(BenchError, match=r"slurm\.conf can't hold the path"):
        infra.plan("slurm", "lab", output="other")


BAD = ['a"b', "a\nb", "lab\n", "a${b}", "a$b", "A", "-a", "a-", "1a", "a.b", "../x", "a b", "", "n" * 33, "é", "a;b"]


def refusal(folder, provider, name, **settings):
    """Return the error of a plan, or an empty text."""
    try:
        Workspace(folder).infra.plan(provider, name, **settings)
    except BenchError as error:
        return str(error)
    return ""


def test_a_name_that_is_not_a_plain_word_is_refused_by_every_provider(tmp_path):
    accepted = [
        (provider, name)
        for provider in ("aws", "kind", "slurm")
        for name in BAD
        if "--name" not in refusal(tmp_path, provider, name)
    ]
    assert not accepted
    assert not list(tmp_path.iterdir())


def test_wrong_settings_are_refused_by_name(tmp_path):
    wrong = [
        {"region": "us-east-1\n"}, {"region": "${x}"}, {"instance_type": 'm6i.large"'}, {"instance_type": "large"},
        {"nodes": "4..2"}, {"nodes": "0..2"}, {"nodes": "-1"}, {"nodes": "1..99999"}, {"nodes": "x"},
        {"gpu_nodes": "1."},
    ]  # fmt: skip
    for settings in wrong:
        option = next(iter(settings)).replace("_", "[-_]")
        assert re.search(option, refusal(tmp_path, "aws", "lab", **settings)), settings


def test_settings_that_a_local_cluster_cannot_have_are_refused(tmp_path):
    wrong = [{"nodes": "1..2"}, {"gpu_nodes": 1}, {"region": "eu-west-1"}, {"nodes": 17}]
    accepted = [
        (provider, settings)
        for provider in ("kind", "slurm")
        for settings in wrong
        if not refusal(tmp_path, provider, "lab", **settings)
    ]
    assert not accepted
