"""Trials inside a real container: the same as outside, with nothing of the host but what was named."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from laboratory import children, wait_until
from services.containers import apptainer as apptainer
from services.containers import images as images

from benchhouse.processes.worker_layer import OURS
from benchhouse.runtimes.apptainer import ApptainerRuntime
from benchhouse.schema.container import BIND_GONE, IMAGE_CHANGED, NO_MODULE, Bind, explain_exit, parse_bind
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings
from benchhouse.schema.site import Site
from benchhouse.sites.images import add

DEBIAN_PACKAGES = "/usr/local/lib/python3.11/dist-packages"
SPEC = RuntimeSettings(kind="apptainer")


@pytest.fixture
def inside(lab, images):
    """The fields of a scenario that runs in the container, where the lab's experiments are found."""
    images.use_prepared_layers(lab.root / "cache")
    return {
        "runtime": {"kind": "apptainer", "image": str(images.python)},
        "binds": [f"{lab.root / 'site'}:{DEBIAN_PACKAGES}:ro", f"{lab.marks}:{lab.marks}"],
        "environment": {"LAB": str(lab.marks)},
    }


@pytest.fixture
def place(tmp_path, images):
    for name in ("ws", "cache"):
        (tmp_path / name).mkdir(exist_ok=True)
    images.use_prepared_layers(tmp_path / "cache")
    return RuntimeContext(
        cache=tmp_path / "cache", image=str(images.python), folders=(tmp_path / "ws", tmp_path / "cache")
    )


def enter(place, *words, **variables):
    """Run our own Python inside, as a job does; `words` follow the interpreter."""
    runtime = ApptainerRuntime()
    runtime.prepare(SPEC, place)
    command = [*runtime.python(SPEC, place), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ | variables, check=False)


def shape(trial):
    """The parts of a trial's files, without their values."""
    rows = trial.metrics["benchhouse"]["measurements"]
    return (
        sorted(trial.metrics),
        sorted(trial.metrics["benchhouse"]),
        sorted((row["metric"], row["stat"], row["unit"], row["scope"], row["window"]) for row in rows),
        sorted(trial.meta),
    )


def test_a_trial_in_a_container_has_the_digests_and_metrics_of_one_outside(lab, images, inside):
    lab.bench("run", lab.scenario("certified", workload={"n": 1, "values": 50}))
    lab.bench("run", lab.scenario("certified", "inside", workload={"n": 1, "values": 50}, **inside))
    (outer,), (inner,) = lab.trials(), lab.trials("inside")
    assert (outer.outcome, inner.outcome) == ("succeeded", "succeeded")
    assert outer.spec["instance_digest"] == inner.spec["instance_digest"] and shape(inner) == shape(outer)
    assert inner.meta["container_digest"] == inner.spec["container_digest"]
    assert 0 < inner.meta["container_enter_s"] < 120
    assert outer.meta["container_digest"] is outer.meta["container_enter_s"] is None
    plans = [json.loads(lab.bench("plan", lab.workspace / f"{name}.yaml", "--json").stdout) for name in ("s", "inside")]
    assert plans[0]["first_points"] == plans[1]["first_points"]
    same = lab.bench("plan", lab.workspace / "s.yaml", "--json", "--runtime", "apptainer", code=None)
    assert json.loads(same.stdout)["plan_digest"] == plans[0]["plan_digest"], "the plan does not know where it runs"

    printed = lab.bench("plan", lab.workspace / "inside.yaml", "--dry-run").stdout
    (script,) = (lab.root / "cache" / "containers").glob("*/enter")
    assert script.read_text() in printed and str(script) in printed
    for check in (["bash", "-n"], ["shellcheck"]):
        subprocess.run([*check, script], check=True)

    with images.python.open("ab") as file:
        file.write(b"\0" * 4096)
    done = lab.bench("run", "--new", lab.workspace / "inside.yaml", code=1)
    assert "is not the one that was pinned" in done.stderr and "bench images add" in done.stderr
    assert len(lab.trials("inside")) == 1
    lab.bench("images", "add", images.python)
    lab.bench("run", "--new", lab.workspace / "inside.yaml")
    assert len({trial.meta["container_digest"] for trial in lab.trials("inside")}) == 2
    lab.is_tidy()


def test_failures_inside_are_those_of_the_benchmark_and_secrets_stay_out_of_evidence(lab, images, inside):
    secret = "hunter2-$(id)-'\"x"
    lab.variables["DB_PASSWORD"] = secret
    lab.bench("run", lab.scenario("secretive", target={"password": "$DB_PASSWORD"}, **inside), code=1)
    assert (lab.marks / "told").read_text() == secret
    everywhere = [
        path for folder in (lab.workspace, lab.root / "cache") for path in folder.rglob("*") if path.is_file()
    ]
    assert [path for path in everywhere if b"hunter2" in path.read_bytes()] == []

    lab.run("certified", name="missing", code=1, **inside | {"binds": inside["binds"][1:]})
    (trial,) = lab.trials("missing")
    assert trial.code == "not_in_image" and "'mischief'" in trial.meta["failure"]["message"]

    there = images.python.stat()
    images.python.write_bytes(b"x" * there.st_size)  # broken, with the size and time that were recorded
    os.utime(images.python, (there.st_atime, there.st_mtime))
    done = lab.run("certified", name="broken", code=1, retries={"max_retries": 0}, **inside)
    assert done["outcomes"] == {"lost": 1}
    reasons = [event.get("reason", "") for event in lab.events()]
    assert any("the container runtime itself failed, not what runs inside (exit 255)" in reason for reason in reasons)


TELL = """
import json, os, sys

def can_write(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False

print(json.dumps({"environ": dict(os.environ), "uid": os.getuid(), "cwd": os.getcwd(), "argv": sys.argv[1:],
    "home": os.path.exists(os.path.expanduser("~/.cache")), "writes": can_write("/usr/made"), "path": sys.path}))
"""


@pytest.fixture
def tells(tmp_path):
    """A module that prints the inside as JSON, bound to the folder where the image's Python finds packages."""
    folder = tmp_path / "tells"
    folder.mkdir()
    (folder / "benchhouse_tells.py").write_text(TELL)
    return f"{folder}:{DEBIAN_PACKAGES}:ro"


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_inside_has_what_was_named_and_nothing_else(place, tells, tmp_path):
    """A folder of the trial has characters in its name that mean something to a shell and to Apptainer."""
    odd = tmp_path / "a b,c:d$(id)'e\"f"
    odd.mkdir()
    (odd / "json.py").write_text("raise SystemExit('the current folder is not searched for modules')")
    named = "a 'quoted' $(touch /tmp/evil) `id` \"text\"\nof two lines"
    site = Site(environment={"FROM_SITE": "x"})
    place = RuntimeContext(
        place.cache, site, place.image, (odd, *place.folders), (tells,), 0, ("NAMED", "UNSET", "PATH")
    )
    variables = {
        "NAMED": named, "LEAKED": "1", "FROM_SITE": "s", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "",
        "APPTAINERENV_SNEAKED": "1", "APPTAINER_BIND": "/nowhere", "PYTHONPATH": "/nowhere", "BENCH_CACHE_DIR": "/c",
        "TMPDIR": str(odd),
    }  # fmt: skip
    seen = told(enter(place, "-m", "benchhouse_tells", "a b", "$(id)", **variables))
    environ = seen["environ"]
    assert environ["NAMED"] == named and not Path("/tmp/evil").exists()
    assert environ["SLURM_JOB_ID"] == "7" and environ["CUDA_VISIBLE_DEVICES"] == "" and environ["FROM_SITE"] == "s"
    assert environ["BENCH_CACHE_DIR"] == "/c" and environ["TMPDIR"] == str(odd)
    assert not {"LEAKED", "SNEAKED", "UNSET", "PYTHONPATH"} & environ.keys()
    assert environ["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert (seen["argv"], seen["cwd"]) == (["a b", "$(id)"], str(odd))
    assert seen["uid"] == os.getuid() and not seen["writes"], "the same user, and an image that nobody can write to"
    assert (Path.home() / ".cache").exists() and not seen["home"], "the home folder stays outside"
    assert not [item for item in seen["path"] if item.startswith(str(Path.home()))]


AS_NOBODY = """
mount --bind "$1/fuse" /dev/fuse
shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


def test_no_root_is_needed(images, apptainer, tells):
    """As `nobody`, who gets a /dev/fuse of his own here; what is root's alone is copied to where he may read."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else; the other tests run as this user")
    may = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "test", "-r", str(OURS)]
    if subprocess.run(may, check=False).returncode:
        pytest.skip(f"nobody but root may read {OURS}")
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        home.chmod(0o755)
        os.mknod(home / "fuse", 0o20666, os.makedev(10, 229))
        (home / "fuse").chmod(0o666)
        shutil.copytree(Path(apptainer).parents[1], home / "prefix", symlinks=True)
        for name in ("ws", "images", "site"):
            (home / name).mkdir()
        images.use_prepared_layers(home / "cache")
        shutil.copy(images.python, home / "images")
        shutil.copytree(tells.partition(":")[0], home / "site", dirs_exist_ok=True)
        add(home / "images" / "python.sif")
        (home / "ws").chmod(0o777)
        binds = (f"{home / 'site'}:{DEBIAN_PACKAGES}:ro",)
        place = RuntimeContext(
            home / "cache", image=str(home / "images" / "python.sif"), folders=(home / "ws",), binds=binds
        )
        runtime = ApptainerRuntime()
        runtime.prepare(SPEC, place)
        become = ["unshare", "--mount", "bash", "-c", AS_NOBODY, "as-nobody", home]
        variables = {"PATH": f"{home}/prefix/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"{home}/ws"}
        command = [*become, *runtime.python(SPEC, place), "-m", "benchhouse_tells"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=100)
        assert told(done)["uid"] == 65534


def test_the_script_checks_image_and_binds_on_the_node_before_it_enters(place, images, tmp_path):
    os.utime(images.python)
    assert enter(place, "-m", "benchhouse.worker", "--nonsense").returncode == 2, "an image that was only touched"
    (tmp_path / "data").mkdir()
    place = RuntimeContext(place.cache, place.site, place.image, place.folders, (f"{tmp_path}/data:/data",))
    ApptainerRuntime().prepare(SPEC, place)
    command = [*ApptainerRuntime().python(SPEC, place), "-m", "benchhouse.worker"]
    (tmp_path / "data").rmdir()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == BIND_GONE and f"{tmp_path}/data" in done.stderr
    assert explain_exit(BIND_GONE)
    (tmp_path / "data").mkdir()
    with images.python.open("ab") as file:
        file.write(b"x")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == IMAGE_CHANGED and "is not the one that was pinned" in done.stderr


def test_what_cannot_be_entered_is_refused_with_the_next_command(place, images):
    gone = tuple(f"/gone{number}:/data{number}" for number in (1, 2))
    unpinned = images.folder / "other.sif"
    shutil.copy(images.plain, unpinned)
    cases = [
        ({"image": ""}, "needs an image", ""),
        ({"image": "docker://busybox"}, "not the absolute path of a .sif file", "bench images pull"),
        ({"image": "relative.sif"}, "not the absolute path of a .sif file", "bench images list"),
        ({"image": "/nowhere/x.sif"}, "is not there", "bench images"),
        ({"image": str(unpinned)}, "is not pinned", f"bench images add {unpinned}"),
        ({"image": str(images.plain)}, "has no Python", "a service whose recipe names this image"),
        ({"image": place.image, "binds": gone}, "/gone1, /gone2", ""),
    ]
    for given, message, hint in cases:
        with pytest.raises(BenchError) as refused:
            ApptainerRuntime().prepare(SPEC, RuntimeContext(place.cache, **given))
        assert message in refused.value.message and hint in refused.value.hint, given
    with pytest.raises(BenchError, match="requirements"):
        ApptainerRuntime().prepare(RuntimeSettings(kind="apptainer", requirements=["x"]), place)
    for text in ("relative:/x", "/x:relative", "/x", "/a:/b:writable"):
        with pytest.raises(BenchError):
            parse_bind(text)
    assert Bind("/a,b", "/c").option()[1] == 'type=bind,"source=/a,b",destination=/c'


def test_a_variable_that_is_not_set_in_the_image_is_reported_with_its_line(bench, tmp_path):
    scenario = {"runtime": {"kind": "apptainer"}, "artifacts": {"container": "$NO_WORK/containers/x.sif"}}
    scenario |= {"scenario": "s", "experiment": "command", "workload": {"shell": "true"}}
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    done = bench("run", "s.yaml")
    assert done.code == 2 and "NO_WORK is not set" in done.err and "s.yaml:1" in done.err


def test_limits_hold_inside(lab, inside):
    limits = {"memory": "200MB", "wall": 4, "cpu": 1}
    lab.run("mischief", code=1, workload={"act": ["fill", "stubborn", "burn_below"]}, limits=limits, **inside)
    trials = lab.by("act")
    assert {act: trial.outcome for act, trial in trials.items()} == {
        "fill": "out_of_memory", "stubborn": "timeout", "burn_below": "timeout",
    }  # fmt: skip
    assert trials["stubborn"].code == "wall_limit" and trials["burn_below"].code in ("cpu_limit", "wall_limit")
    for trial in trials.values():
        assert "none" not in " ".join(trial.meta["limits"]["enforced_by"].values())
    lab.is_tidy()


def runs(pid):
    """Whether it runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_killed_and_stopped_containers_leave_nothing(lab, inside):
    """The worker inside is killed, then the container of the next attempt, then bench itself; in the end, `stop`."""

    def experiment_of(attempt):
        (mark,) = lab.wait_for_mark("slow-0-*")
        wait_until(lambda: mark.read_text(), f"the process of attempt {attempt}")
        pid = int(mark.read_text())
        mark.unlink()
        return pid

    more = {"workload": {"seconds": 300}, "retries": {"max_retries": 5, "backoff": 0.05}}
    bench = lab.start("run", lab.scenario("slow", **more, **inside))
    started = [experiment_of(1)]
    os.kill(int(Path(f"/proc/{started[0]}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    started.append(experiment_of(2))
    os.kill(children(bench.pid)[0], signal.SIGKILL)
    started.append(experiment_of(3))
    bench.kill()
    bench.communicate(timeout=60)
    wait_until(lambda: not lab.left_running() and not any(map(runs, started)), "the end of all below", 60)
    assert str(lab.root) not in Path("/proc/mounts").read_text()

    bench = lab.start("run", "--resume", "@last")
    experiment_of(4)
    lab.bench("stop")
    bench.communicate(timeout=60)
    lab.is_tidy()


def test_modules_of_the_site_are_loaded_if_there_are_any(place, tmp_path):
    site = Site(modules=("Apptainer/1.4", "CUDA"))
    place = RuntimeContext(place.cache, site, place.image, place.folders)
    loaded = tmp_path / "loaded"
    function = {"BASH_FUNC_module%%": f'() {{ echo "noise"; echo "$@" >> {loaded}; [ "$2" != "$BAD" ]; }}'}
    assert enter(place, "-m", "benchhouse.worker", "--x").returncode == 2, "without `module` it goes on"
    done = enter(place, "-m", "benchhouse.worker", "--x", **function)
    assert done.returncode == 2 and done.stdout == "", "what modules print is not part of the worker's output"
    assert loaded.read_text() == "load Apptainer/1.4\nload CUDA\n"
    bad = enter(place, "-m", "benchhouse.worker", "--x", BAD="CUDA", **function)
    assert bad.returncode == NO_MODULE and "module load CUDA failed" in bad.stderr


def test_gpus_are_shown_only_when_they_are_requested(place):
    scripts = [
        ApptainerRuntime()
        .container(SPEC, RuntimeContext(place.cache, place.site, place.image, place.folders, (), gpus))
        .script
        for gpus in (0, 2)
    ]
    assert [("--nv" in script) for script in scripts] == [False, True]
    assert all(word not in script for script in scripts for word in ("--writable", "--fakeroot"))
