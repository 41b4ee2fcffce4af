"""Schedules that a cluster keeps: for old and new servers, and one that a real controller carries out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from laboratory import Lab, wait_until
from services.kubernetes_cluster import KubernetesCluster
from services.on_demand import module

from benchhouse.automation.cron_jobs import CronRun, cron_job, cron_name
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite, Volume
from benchhouse.schema.resources import Resources

SITE = KubernetesSite(
    namespace="team",
    image="registry.example/bench@sha256:0",
    volume=Volume(claim="shared", path="/v"),
    queue="nights",
    pull_secrets=("registry",),
)
RUN = CronRun(
    "nightly", Path("/v/ws/nightly.yaml"), Path("/v/ws"), "0 2 * * *", resources=Resources(cpus=4, memory=2**32, gpus=1)
)


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    [only] = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("zone", ["", "Europe/Berlin"])
def test_every_field_is_known_to_current_servers(zone: str):
    validate = module("kubernetes-schemas", "kubernetes_validate").validate
    made = cron_job(replace(RUN, time_zone=zone, user=(1000, 1000)), SITE, (1, 30))
    assert made["apiVersion"] == "batch/v1"
    validate(made, "1.30", strict=True)


def test_an_old_server_gets_what_it_knows():
    made = cron_job(RUN, SITE, (1, 20))
    assert made["apiVersion"] == "batch/v1beta1"
    with pytest.raises(BenchError, match=r"1\.20 knows no time zones"):
        cron_job(replace(RUN, time_zone="Europe/Berlin"), SITE, (1, 20))


def test_a_pod_has_what_all_trials_at_a_time_need_and_no_rights():
    made = cron_job(RUN, SITE, (1, 30))
    amounts = {"cpu": "4", "memory": str(2**32), "nvidia.com/gpu": "1"}
    assert container(made)["resources"] == {"requests": amounts, "limits": amounts}
    template = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert template["automountServiceAccountToken"] is False
    assert made["spec"]["jobTemplate"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "nights"
    elsewhere = cron_job(replace(RUN, executor="kubernetes"), SITE, (1, 30))
    assert container(elsewhere)["resources"]["limits"] == {"cpu": "1", "memory": str(2**30)}
    assert elsewhere["spec"]["jobTemplate"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    ("run", "site", "words"),
    [
        ({"cron": "0 2 * *"}, {}, "is no schedule"),
        ({"cron": "0 2 * * *; rm -rf /"}, {}, "is no schedule"),
        ({}, {"image": None}, "there is no image"),
        ({}, {"volume": None}, "there is none"),
        ({"file": Path("/home/nightly.yaml")}, {}, "the scenario /home/nightly.yaml is not on the volume shared"),
    ],
)
def test_what_could_not_run_is_refused(run: dict[str, Any], site: dict[str, Any], words: str):
    with pytest.raises(BenchError, match=words):
        cron_job(replace(RUN, **run), SITE.model_copy(update=site), (1, 30))


def test_a_cluster_that_takes_whole_runs_is_refused(lab: Lab):
    scenario = lab.scenario("once", executor="ray", ray={"address": "http://127.0.0.1:9"})
    done = lab.bench("schedule", "render", scenario, "--cron", "@daily", "--kubernetes", "1.30", code=2)
    assert "can't be given them on schedule yet" in done.stderr


def test_names_are_those_of_objects_and_no_two_scenarios_share_one():
    assert cron_name("nightly") == "bench-nightly"
    names = {cron_name(name) for name in ("Nightly", "nightly", "night_ly", "night-ly", "a" * 100, "a" * 99)}
    assert len(names) == 6
    assert max(map(len, names)) <= 52


def test_a_real_controller_runs_what_was_rendered(lab: Lab, kubernetes_cluster: KubernetesCluster):
    """The image has Python alone: what stands for `bench` there writes down how it was called."""
    package = lab.root / "packages" / "benchhouse"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("import os, sys; open('called', 'w').write(' '.join(sys.argv[1:]))")
    (package / "__init__.py").touch()
    namespace = kubernetes_cluster.make_namespace()
    site = kubernetes_cluster.site(namespace, lab.root)
    lab.variables["KUBECONFIG"] = kubernetes_cluster.kubeconfig
    variables = {"PYTHONPATH": str(package.parent)}
    (lab.workspace / "site.yaml").write_text(json.dumps({"site": "t", "environment": variables, "kubernetes": site}))
    scenario = lab.scenario("once")
    shown = yaml.safe_load(lab.bench("schedule", "render", scenario, "--cron", "0 2 * * *").stdout)
    shown["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["workingDir"] = str(lab.workspace)
    kubernetes_cluster.kubectl("create", "--filename", "-", document=shown)
    name = shown["metadata"]["name"]
    [kept] = kubernetes_cluster.get("cronjobs", "--namespace", namespace)
    assert kept["spec"]["jobTemplate"]["spec"].items() >= {"backoffLimit": 0, "activeDeadlineSeconds": 86400}.items()
    kubernetes_cluster.kubectl("create", "job", "now", f"--from=cronjob/{name}", "--namespace", namespace)
    called = lab.workspace / "called"
    wait_until(lambda: called.exists() and called.read_text(), "the pod to run")
    assert called.read_text() == f"-C {lab.workspace} run {scenario} --executor local"
    kubernetes_cluster.forget(namespace)
