"""`storage.s3` by `bench run`: what is refused, what is in the evidence, and what is left when a run is cut short."""

import json

import pytest

SECRET = "a-literal-secret-of-mine"


@pytest.fixture
def scenario(lab, seaweedfs):
    def write(workload=None, **more):
        lab.variables |= seaweedfs.environment
        target = {"endpoint": seaweedfs.url, "bucket": "runs", "create_bucket": True} | more.pop("target", {})
        asked = {"operation": "put", "size": "1KB", "concurrency": 4, "requests": 50, "warmup": 0} | (workload or {})
        return lab.scenario("storage.s3", target=target, workload=asked, **more)

    return write


def evidence_of(trial):
    return b"".join(path.read_bytes() for path in sorted(trial.folder.rglob("*")) if path.is_file())


def test_the_server_is_started_where_none_is_given(lab):
    asked = {"size": "1KB", "concurrency": 2, "requests": 20, "warmup": 0, "objects": 5}
    lab.bench("run", lab.scenario("storage.s3", workload=asked), code=None)
    (trial,) = lab.trials()
    assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
    assert trial.meta["custom"]["deployment"] == "embedded"
    assert trial.meta["custom"]["requests"] == {"get": 20}


def test_a_reference_to_other_variables_is_followed_and_the_secret_is_not_in_the_evidence(lab, scenario, seaweedfs):
    names = {"access_key": "$MY_ACCESS_KEY", "secret_access_key": "$MY_SECRET"}
    path = scenario(target=names)
    key, secret = seaweedfs.environment.values()
    lab.variables = {"MY_ACCESS_KEY": key, "MY_SECRET": secret}
    lab.bench("run", path, code=None)
    (trial,) = lab.trials()
    assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
    assert trial.spec["target"]["secret_access_key"] == "$MY_SECRET"
    found = evidence_of(trial)
    assert b"storage.s3" in found
    assert secret.encode() not in found


def test_credentials_in_a_scenario_are_refused_with_what_to_do_and_not_repeated(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "it is here")
    half = "http://$AWS_SECRET_ACCESS_KEY@127.0.0.1:9000"  # the key is missing
    for target, words in [
        ({"secret_access_key": SECRET}, "variable"),
        ({"access_key": SECRET}, "variable"),
        ({"session_token": SECRET}, "variable"),
        ({"endpoint": f"http://me:{SECRET}@127.0.0.1:9000"}, "'endpoint' holds a secret in plain text"),
        ({"endpoint": half}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ]:
        content = {
            "scenario": "s",
            "experiment": "storage.s3",
            "target": {"endpoint": "http://127.0.0.1:9000", "bucket": "runs"} | target,
            "workload": {"operation": "put", "concurrency": 4, "requests": 50, "warmup": 0},
        }
        (tmp_path / "s.yaml").write_text(json.dumps(content))
        done = bench("validate", "s.yaml")
        assert done.code != 0
        assert SECRET not in done.out + done.err
        assert words in done.err


def test_a_run_that_breaks_its_time_limit_leaves_no_object(lab, scenario, seaweedfs):
    bucket = seaweedfs.bucket("runs")
    slowly = {"requests": None, "duration": 60, "concurrency": None, "rps": 8}  # what is there goes within the grace
    lab.bench("run", scenario(slowly, limits={"wall": "4s"}), code=None)
    (trial,) = lab.trials()
    assert trial.outcome == "timeout"
    assert list(bucket.keys("")) == []
