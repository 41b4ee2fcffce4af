"""`storage.s3` against a real server, and against the same server behind a proxy that does known harm."""

import time

import pytest
from mocks.s3_proxy import S3Proxy
from services.quiet_moment import in_a_quiet_moment
from services.seaweedfs import running

from benchhouse.experiments.storage.s3 import s3
from benchhouse.http import s3_sign
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.worker.context import TrialContext

BUCKET = "house"
SIZE = 3000


@pytest.fixture(autouse=True)
def _credentials(seaweedfs, monkeypatch):
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def house(seaweedfs):
    """A bucket with somebody else's objects in it, which must survive; emptied afterwards."""
    bucket = seaweedfs.bucket(BUCKET)
    foreign = ["benchhouse/other/1", "data/benchhouse/2", "z"]
    for key in foreign:
        bucket._ask("PUT", key, body=b"not yours")
    yield bucket
    left = sorted(bucket.keys(""))
    bucket.remove(left)
    assert left == foreign, "only what is the trial's own is removed, and all of it"
    assert bucket.abort_uploads("") == 0, "no upload is left half done"


@pytest.fixture
def trial(tmp_path, seaweedfs):
    """`trial(workload, **target)` runs one in this process; what it recorded."""

    def run(workload, **target):
        ctx = TrialContext(s3, "trial", 1, 7, tmp_path, tmp_path, None)
        run.ctx = ctx
        where = {"endpoint": seaweedfs.url, "bucket": BUCKET} | target
        s3.call(where, {"size": SIZE, "concurrency": 4, "warmup": 0, "objects": 20} | workload, ctx)
        return ctx

    return run


def value(ctx, name):
    (found,) = ctx.series[name, ""].values
    return found


def latencies(ctx, name="latency"):
    return ctx.series[name, ""].histogram


@pytest.mark.parametrize("processes", [1, 2])
def test_gets_are_counted_to_the_byte(trial, house, processes):
    ctx = trial({"operation": "get", "requests": 101, "verify": 1, "processes": processes})
    assert ctx.facts["requests"] == {"get": 101}
    assert ctx.facts["bytes"] == {"get": 101 * SIZE}
    assert ctx.facts["compared"] == 101
    assert value(ctx, "error_rate") == value(ctx, "corrupt") == 0
    assert value(ctx, "bandwidth") == pytest.approx(value(ctx, "operations_per_s") * SIZE / 1e6)
    assert latencies(ctx, "ttfb").n == latencies(ctx, "latency_get").n == 101
    assert 0 < latencies(ctx, "ttfb").quantile(0.5) <= latencies(ctx).quantile(0.5)


@pytest.mark.parametrize("processes", [1, 2])
def test_puts_are_counted_and_read_back(trial, house, processes):
    ctx = trial({"operation": "put", "requests": 60, "verify": 0.2, "processes": processes})
    assert ctx.facts["bytes"] == {"put": 60 * SIZE}
    assert ctx.facts["read_back"] == 12
    assert ctx.invalidities == [] or ctx.invalidities[0][0].startswith("client_")
    assert latencies(ctx, "latency_put").n == 60


def test_an_object_larger_than_any_buffer_comes_back_as_it_was_written(trial, house):
    size = 18_000_001  # the block that contents are made of is shorter
    ctx = trial({"mix": {"get": 1, "put": 1}, "size": size, "requests": 4, "objects": 1, "verify": 1})
    assert sum(ctx.facts["bytes"].values()) == 4 * size
    assert ctx.facts["compared"] == ctx.facts["requests"]["get"]
    assert ctx.facts["read_back"] == ctx.facts["requests"]["put"]
    assert value(ctx, "corrupt") == value(ctx, "errors") == 0


@pytest.mark.parametrize("processes", [1, 3])
def test_deletes_find_an_object_each(trial, house, processes):
    ctx = trial({"operation": "delete", "requests": 50, "processes": processes})
    assert ctx.facts["requests"] == {"delete": 50}
    assert "deletes_replaced" not in dict(ctx.warnings)


def test_a_listing_is_one_operation_whatever_its_pages(trial, house):
    ctx = trial({"operation": "list", "requests": 40, "objects": 35, "page_size": 10})
    assert ctx.facts["requests"] == {"list": 40}
    whole = latencies(ctx, "latency_list").n
    assert 6 <= whole <= 10, "of four pages each"
    assert value(ctx, "operations_per_s") == pytest.approx(whole / ctx.facts["window_s"])
    assert latencies(ctx, "latency_list").quantile(0.5) > 2 * latencies(ctx).quantile(0.5)


def test_an_upload_in_parts_is_one_object(trial, house):
    ctx = trial(
        {"operation": "multipart", "size": "6MiB", "part_size": "5MiB", "requests": 9, "verify": 1, "concurrency": 1}
    )
    done = ctx.facts["requests"]
    assert done["complete"] == latencies(ctx, "latency_multipart").n > 0
    assert done["create"] + done["part"] + done["complete"] == 9
    assert ctx.facts["read_back"] == done["complete"]
    seconds = ctx.facts["window_s"]
    assert value(ctx, "bandwidth") == pytest.approx(ctx.facts["bytes"]["part"] / seconds / 1e6)
    assert value(ctx, "operations_per_s") == pytest.approx(done["complete"] / seconds)
    assert value(ctx, "corrupt") == 0


def test_a_mix_is_met_by_weight_and_told_by_kind(trial, house):
    ctx = trial({"mix": {"get": 60, "put": 20, "delete": 15, "list": 5}, "requests": 400, "size": 1000})
    done = ctx.facts["requests"]
    assert done["get"] == pytest.approx(240, abs=45)
    assert done["put"] == pytest.approx(80, abs=35)
    assert done["delete"] == pytest.approx(60, abs=30)
    assert {name for name, _ in ctx.series} >= {f"latency_{kind}" for kind in ("get", "put", "delete", "list")}
    assert value(ctx, "errors") == 0


def test_an_open_loop_is_offered(trial, house):
    ctx = trial({"concurrency": None, "rps": 50, "duration": 1})
    assert 20 <= ctx.facts["measured"] <= 90


def test_a_delayed_share_shows_in_p99_and_mean(trial, house, seaweedfs):
    def measure():
        with S3Proxy(seaweedfs.url, "delay", every=20, delay_s=0.15) as proxy:
            ctx = trial({"requests": 200}, endpoint=proxy.url)
        found = latencies(ctx)
        assert proxy.harmed == 10
        others = found.quantile(0.5)
        assert others < 100e6 < 150e6 <= found.quantile(0.96)
        assert found.quantile(0.99) < 400e6
        assert found.mean == pytest.approx(others + 0.05 * 150e6, rel=0.5, abs=8e6)

    in_a_quiet_moment(measure)


def test_a_refused_share_is_the_error_rate(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "refuse", every=25) as proxy:
        ctx = trial({"requests": 200}, endpoint=proxy.url)
    assert value(ctx, "error_rate") == 8 / 200
    assert ctx.facts["errors"] == {"http_503": 8}
    assert ctx.facts["first_errors"]["http_503"] == "SlowDown: Please reduce your request rate."
    assert "http_503 8 times" in dict(ctx.warnings)["failures"]
    assert latencies(ctx).n == 192


@pytest.mark.parametrize("size", [SIZE, 3_000_000])
def test_a_changed_bit_is_found_and_named(trial, house, seaweedfs, size):
    with S3Proxy(seaweedfs.url, "corrupt", every=5) as proxy:
        ctx = trial({"requests": 15, "size": size, "objects": 2, "verify": 1}, endpoint=proxy.url)
    assert ctx.facts["errors"] == {"corrupt": 3}
    assert value(ctx, "corrupt") == 3
    assert "differs from what was written" in ctx.facts["first_errors"]["corrupt"]


def test_only_the_share_that_is_compared_can_be_found_wrong(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "corrupt", every=1) as proxy:
        ctx = trial({"requests": 200, "verify": 0.25}, endpoint=proxy.url)
    assert value(ctx, "corrupt") == ctx.facts["errors"]["corrupt"] == pytest.approx(50, abs=25)


def test_a_connection_dropped_in_mid_body_is_told(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "cut", every=10) as proxy:
        ctx = trial({"requests": 20, "size": 2_000_000, "objects": 2}, endpoint=proxy.url)
    assert ctx.facts["errors"] == {"reset": 2}


def test_a_lost_write_is_told(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "swallow", every=20, only="PUT .*/written/") as proxy:
        ctx = trial({"operation": "put", "requests": 60}, endpoint=proxy.url)
    assert value(ctx, "errors") == 0, "the server said that all went well"
    assert "58 objects are there and 61 should be" in dict(ctx.invalidities)["writes_lost"]


def test_a_spoiled_write_is_found_when_it_is_read_back(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "spoil", every=2, only="PUT .*/written/") as proxy:
        ctx = trial({"operation": "put", "requests": 16, "verify": 1}, endpoint=proxy.url)
    assert "8 of 16 objects read back" in dict(ctx.invalidities)["writes_corrupt"]
    assert value(ctx, "corrupt") == 8


def test_a_write_with_another_etag_is_corrupt(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "alter", every=10, only="PUT .*/written/") as proxy:
        ctx = trial({"operation": "put", "requests": 20}, endpoint=proxy.url)
    assert ctx.facts["errors"] == {"corrupt": 2}
    assert "the MD5 of what was sent" in ctx.facts["first_errors"]["corrupt"]


def test_a_refused_write_is_not_a_lost_one(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "refuse", every=10, only="PUT .*/written/") as proxy:
        ctx = trial({"operation": "put", "requests": 20}, endpoint=proxy.url)
    assert ctx.facts["errors"] == {"http_503": 2}
    assert "writes_lost" not in dict(ctx.invalidities), "what was refused need not be there"


def test_a_failed_upload_is_aborted(trial, house, seaweedfs):
    with S3Proxy(seaweedfs.url, "refuse", every=2, only="PUT .*partNumber=2") as proxy:
        asked = {"operation": "multipart", "size": "6MiB", "part_size": "5MiB", "requests": 12, "concurrency": 1}
        ctx = trial(asked, endpoint=proxy.url)
    assert ctx.facts["errors"]["http_503"] == proxy.harmed > 0
    assert ctx.facts["requests"]["abort"] > 0
    assert "leftovers" not in dict(ctx.warnings)


def test_a_server_killed_in_mid_run_is_told(trial, monkeypatch):
    with running() as doomed:
        for name, secret in doomed.environment.items():
            monkeypatch.setenv(name, secret)
        doomed.kill_after(BUCKET, objects=20)
        with pytest.raises(ExperimentFailed, match="has not taken a connection") as failed:
            trial({"operation": "put", "duration": 30}, endpoint=doomed.url)
    assert failed.value.code == "server_gone"
    assert trial.ctx.facts["errors"]["refused"] > 0
    assert "could be removed: refused" in dict(trial.ctx.warnings)["leftovers"]


def test_a_wrong_secret_is_a_403_in_the_servers_words(trial, house, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    with pytest.raises(ExperimentFailed, match="SignatureDoesNotMatch") as failed:
        trial({"requests": 1})
    assert failed.value.code == "http_403"
    assert "a-wrong-secret" not in failed.value.message


def test_a_wrong_bucket_is_a_404_and_nothing_is_created(trial, house):
    with pytest.raises(ExperimentFailed, match=r"NoSuchBucket.*create_bucket: true") as failed:
        trial({"requests": 1}, bucket="nowhere")
    assert failed.value.code == "http_404"
    with pytest.raises(ExperimentFailed, match="NoSuchBucket"):
        trial({"requests": 1}, bucket="nowhere")


def test_a_skewed_clock_is_told_in_the_servers_words(trial, house, monkeypatch):
    late = time.time() - 3600
    with monkeypatch.context() as patch, pytest.raises(ExperimentFailed, match="RequestTimeTooSkewed") as failed:
        patch.setattr(s3_sign.time, "time", lambda: late)
        trial({"requests": 1})
    assert failed.value.code == "http_403"


def test_a_bucket_that_was_asked_for_comes_and_goes(trial, seaweedfs):
    trial({"operation": "put", "requests": 5}, bucket="only-now", create_bucket=True)
    with pytest.raises(ExperimentFailed, match="NoSuchBucket"):
        trial({"requests": 1}, bucket="only-now")


def test_what_another_trial_left_is_told_and_left_alone(trial, house):
    ctx = trial({"operation": "put", "requests": 5})
    assert "such as benchhouse/other/" in dict(ctx.warnings)["others_objects"]


def test_a_bucket_that_was_there_stays(trial, house):
    trial({"operation": "put", "requests": 5}, create_bucket=True)
    assert "z" in list(house.keys(""))


def test_other_ways_to_address_and_sign(trial, house):
    for target in ({"style": "virtual"}, {"sign_payload": True}, {"region": "eu-west-3"}):
        ctx = trial({"mix": {"get": 1, "put": 1}, "requests": 20}, **target)
        assert value(ctx, "errors") == 0, target


def test_without_credentials_it_says_what_to_set(trial, house, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ExperimentFailed, match="AWS_SECRET_ACCESS_KEY is not set") as failed:
        trial({"requests": 1})
    assert failed.value.code == "no_credentials"


def test_without_a_bucket_it_says_so(trial):
    with pytest.raises(ExperimentFailed, match=r"target\.bucket"):
        trial({"requests": 1}, bucket="")


def test_no_server_is_told(trial, seaweedfs):
    with pytest.raises(ExperimentFailed, match="Connection refused") as failed:
        trial({"requests": 1}, endpoint="http://127.0.0.1:1")
    assert failed.value.code == "refused"


def test_a_load_that_makes_no_sense_is_refused():
    for workload, words in [
        ({"operation": "get", "mix": {"put": 1}}, "not both"),
        ({"mix": {}}, "at least one operation"),
        ({"mix": {"get": 0}}, "weights above 0"),
        ({"operation": "delete", "duration": 5}, "give requests"),
        ({"operation": "delete", "requests": 5, "warmup": 1}, "warmup: 0"),
        ({"size": "6GB"}, "multipart"),
        ({"operation": "multipart", "size": "100GB"}, "larger part_size"),
        ({"part_size": "1MB"}, "greater than or equal"),
        ({"size": 0}, "greater than 0"),
        ({"verify": 2}, "less than or equal"),
    ]:
        with pytest.raises(ValueError, match=words):
            s3.workload_model.model_validate({"concurrency": 1, "warmup": 0} | workload)
