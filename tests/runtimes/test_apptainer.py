"""Trials inside a real container: the same as outside, with nothing of the host but what was named."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from laboratory import children, wait_until
from services.containers import apptainer as apptainer
from services.containers import images as images

from benchhouse.processes.worker_layer import OURS
from benchhouse.runtimes.apptainer import ApptainerRuntime
from benchhouse.schema.container import BIND_GONE, IMAGE_CHANGED, Bind, explain_exit, parse_bind
from benchhouse.schema.errors import BenchError
from benchhouse.schema.protocols import Place
from benchhouse.schema.resources import Runtime
from benchhouse.schema.site import Site
from benchhouse.sites.images import add

DEBIAN_PACKAGES = "/usr/local/lib/python3.11/dist-packages"


@pytest.fixture
def inside(lab, images):
    """What a scenario says to run in the container, with the lab's experiments to be found there."""
    return {
        "runtime": {"kind": "apptainer", "image": str(images.python)},
        "binds": [f"{lab.root / 'site'}:{DEBIAN_PACKAGES}:ro", f"{lab.marks}:{lab.marks}"],
        "environment": {"LAB": str(lab.marks)},
    }


@pytest.fixture
def place(tmp_path, images):
    for name in ("ws", "cache"):
        (tmp_path / name).mkdir(exist_ok=True)
    return Place(cache=tmp_path / "cache", image=str(images.python), folders=(tmp_path / "ws", tmp_path / "cache"))


def enter(place, *words, **variables):
    """Run our own Python inside, as a job would; `words` follow the interpreter."""
    runtime, spec = ApptainerRuntime(), Runtime(kind="apptainer")
    runtime.prepare(spec, place)
    command = [*runtime.python(spec, place), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | variables, check=False)


def shape(trial):
    """What a trial's files are made of, without their values."""
    rows = trial.metrics["benchhouse"]["measurements"]
    return (
        sorted(trial.metrics),
        sorted(trial.metrics["benchhouse"]),
        sorted((row["metric"], row["stat"], row["unit"], row["scope"], row["window"]) for row in rows),
        sorted(trial.meta),
    )


@pytest.mark.slow
def test_a_trial_in_a_container_has_the_digests_and_metrics_of_one_outside(lab, images, inside):
    workload = {"n": [1, 2], "values": 50}
    lab.bench("run", lab.scenario("certified", workload=workload, repetitions=2))
    lab.bench("run", lab.scenario("certified", "inside", workload=workload, repetitions=2, **inside))
    outer, inner = ({trial.spec["instance_digest"]: trial for trial in lab.trials(name)} for name in ("s", "inside"))
    assert outer.keys() == inner.keys() and len(outer) == 2
    for digest, trial in inner.items():
        assert trial.outcome == "succeeded"
        assert shape(trial) == shape(outer[digest])
        assert trial.meta["container_digest"] == trial.spec["container_digest"]
        assert 0 < trial.meta["container_enter_s"] < 120
        assert outer[digest].meta["container_digest"] is outer[digest].meta["container_enter_s"] is None
    plans = [json.loads(lab.bench("plan", lab.workspace / f"{name}.yaml", "--json").stdout) for name in ("s", "inside")]
    assert plans[0]["first_points"] == plans[1]["first_points"]
    same = lab.bench("plan", lab.workspace / "s.yaml", "--json", "--runtime", "apptainer", code=None)
    assert json.loads(same.stdout)["plan_digest"] == plans[0]["plan_digest"], "the plan does not know where it runs"
    lab.is_tidy()


PRINT_ENVIRONMENT = ("-m", "benchhouse_tells")


@pytest.fixture
def tells(tmp_path):
    """A module that prints as JSON what the inside looks like, bound to where the image's Python finds packages."""
    folder = tmp_path / "tells"
    folder.mkdir()
    (folder / "benchhouse_tells.py").write_text(
        "import json, os, sys\n"
        "def can_write(path):\n"
        "    try:\n"
        "        open(path, 'w').close()\n"
        "        return True\n"
        "    except OSError:\n"
        "        return False\n"
        "print(json.dumps({'environ': dict(os.environ), 'uid': os.getuid(), 'cwd': os.getcwd(), 'argv': sys.argv[1:],\n"
        "    'home': os.path.exists(os.path.expanduser('~/.cache')), 'writes': can_write('/usr/made'),\n"
        "    'path': sys.path}))\n"
    )
    return f"{folder}:{DEBIAN_PACKAGES}:ro"


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_of_the_environment_goes_in_but_what_is_named(place, tells, tmp_path):
    named = "a 'quoted' $(touch /tmp/evil) `id` \"text\"\nof two lines"
    site = Site(environment={"FROM_SITE": "x"})
    place = Place(place.cache, site, place.image, place.folders, (tells,), 0, ("NAMED", "UNSET", "PATH"))
    variables = {
        "NAMED": named, "LEAKED": "1", "FROM_SITE": "s", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "",
        "APPTAINERENV_SNEAKED": "1", "APPTAINER_BIND": "/nowhere", "PYTHONPATH": "/nowhere", "BENCH_CACHE_DIR": "/c",
        "TMPDIR": str(tmp_path),
    }  # fmt: skip
    seen = told(enter(place, *PRINT_ENVIRONMENT, "a b", "$(id)", **variables))
    environ = seen["environ"]
    assert environ["NAMED"] == named and not Path("/tmp/evil").exists()
    assert environ["SLURM_JOB_ID"] == "7" and environ["CUDA_VISIBLE_DEVICES"] == "" and environ["FROM_SITE"] == "s"
    assert environ["BENCH_CACHE_DIR"] == "/c" and environ["TMPDIR"] == str(tmp_path)
    assert not {"LEAKED", "SNEAKED", "UNSET", "PYTHONPATH"} & environ.keys()
    assert environ["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert seen["argv"] == ["a b", "$(id)"]
    assert seen["cwd"] == str(place.folders[0])


def test_the_user_stays_who_he_is_and_the_image_as_it_is(place, tells):
    place = Place(place.cache, place.site, place.image, place.folders, (tells,))
    seen = told(enter(place, *PRINT_ENVIRONMENT))
    assert seen["uid"] == os.getuid()
    assert not seen["writes"]
    assert (Path.home() / ".cache").exists() and not seen["home"], "the home folder stays outside"
    assert not [item for item in seen["path"] if item.startswith(str(Path.home()))]


AS_NOBODY = """
mount --bind "$1/fuse" /dev/fuse
shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


@pytest.mark.slow
def test_no_root_is_needed(images, apptainer, tells):
    """As `nobody`, who gets a /dev/fuse of his own here; what is root's alone is copied to where he may read."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else; the other tests run as this user")
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        home.chmod(0o755)
        os.mknod(home / "fuse", 0o20666, os.makedev(10, 229))
        (home / "fuse").chmod(0o666)
        shutil.copytree(Path(apptainer).parents[1], home / "prefix", symlinks=True)
        for name in ("ws", "cache", "images", "site"):
            (home / name).mkdir()
        shutil.copy(images.python, home / "images")
        shutil.copytree(tells.partition(":")[0], home / "site", dirs_exist_ok=True)
        add(home / "images" / "python.sif")
        (home / "ws").chmod(0o777)
        binds = (f"{home / 'site'}:{DEBIAN_PACKAGES}:ro",)
        place = Place(home / "cache", image=str(home / "images" / "python.sif"), folders=(home / "ws",), binds=binds)
        runtime, spec = ApptainerRuntime(), Runtime(kind="apptainer")
        runtime.prepare(spec, place)
        become = ["unshare", "--mount", "bash", "-c", AS_NOBODY, "as-nobody", home]
        variables = {"PATH": f"{home}/prefix/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"{home}/ws"}
        may = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "test", "-r", str(OURS)]
        if subprocess.run(may, check=False).returncode:
            pytest.skip(f"nobody but root may read {OURS}")
        command = [*become, *runtime.python(spec, place), *PRINT_ENVIRONMENT]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
        assert told(done)["uid"] == 65534


@pytest.mark.slow
def test_a_secret_gets_in_and_never_into_evidence(lab, inside):
    secret = "hunter2-$(id)-'\"x"
    lab.variables["DB_PASSWORD"] = secret
    lab.bench("run", lab.scenario("secretive", target={"password": "$DB_PASSWORD"}, **inside), code=1)
    assert (lab.marks / "told").read_text() == secret
    everywhere = [
        path for folder in (lab.workspace, lab.root / "cache") for path in folder.rglob("*") if path.is_file()
    ]
    assert [path for path in everywhere if b"hunter2" in path.read_bytes()] == []


def test_an_image_that_changed_after_it_was_pinned_is_refused(lab, images, inside, place):
    enter_it = ApptainerRuntime().python(Runtime(kind="apptainer"), place)
    ApptainerRuntime().prepare(Runtime(kind="apptainer"), place)
    with images.python.open("ab") as file:
        file.write(b"x")
    done = lab.bench("run", lab.scenario("certified", **inside), code=1)
    assert "is not the one that was pinned" in done.stderr and "bench images add" in done.stderr
    assert lab.trials() == []
    job = subprocess.run([*enter_it, "-m", "benchhouse.worker"], capture_output=True, text=True, check=False)
    assert job.returncode == IMAGE_CHANGED and "is not the one that was pinned" in job.stderr


def test_an_image_that_was_only_touched_is_the_same(place, images):
    os.utime(images.python)
    assert enter(place, "-m", "benchhouse.worker", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("", "needs an image"),
        ("docker://busybox", "not the absolute path of a .sif file"),
        ("relative.sif", "not the absolute path of a .sif file"),
        ("/nowhere/x.sif", "is not there"),
    ],
)
def test_what_is_no_pinned_image_is_refused_with_the_next_command(place, image, said):
    with pytest.raises(BenchError, match=said) as error:
        ApptainerRuntime().prepare(Runtime(kind="apptainer"), Place(place.cache, image=image))
    assert error.value.hint


def test_an_image_that_nobody_pinned_is_refused(place, images):
    (images.folder / "images.json").unlink()
    with pytest.raises(BenchError, match="is not pinned") as error:
        ApptainerRuntime().prepare(Runtime(kind="apptainer"), place)
    assert error.value.hint.endswith(f"bench images add {images.python}")


def test_a_variable_that_is_not_set_in_the_image_is_told_with_its_line(lab):
    lab.scenario("certified", runtime={"kind": "apptainer"}, artifacts={"container": "$NO_WORK/containers/x.sif"})
    done = lab.bench("run", lab.workspace / "s.yaml", code=2)
    assert "NO_WORK is not set" in done.stderr and "s.yaml:1" in done.stderr


def test_missing_binds_are_refused_before_anything_starts_with_all_of_them(lab, inside):
    gone = [f"{lab.root}/gone{number}:/data{number}" for number in (1, 2)]
    done = lab.bench("run", lab.scenario("certified", **inside | {"binds": [*inside["binds"], *gone]}), code=2)
    assert f"{lab.root}/gone1, {lab.root}/gone2" in done.stderr
    assert lab.trials() == []


def test_a_bind_that_is_gone_on_the_node_has_an_exit_code_of_its_own(place, tmp_path):
    (tmp_path / "data").mkdir()
    place = Place(place.cache, place.site, place.image, place.folders, (f"{tmp_path}/data:/data",))
    ApptainerRuntime().prepare(Runtime(kind="apptainer"), place)
    (tmp_path / "data").rmdir()
    command = ApptainerRuntime().python(Runtime(kind="apptainer"), place)
    done = subprocess.run([*command, "-m", "benchhouse.worker"], capture_output=True, text=True, check=False)
    assert done.returncode == BIND_GONE and f"{tmp_path}/data" in done.stderr
    assert explain_exit(BIND_GONE)


@pytest.mark.parametrize("text", ["relative:/x", "/x:relative", "/x", "/a:/b:writable"])
def test_a_bind_that_is_none_is_refused(text):
    with pytest.raises(BenchError):
        parse_bind(text)


def test_paths_with_marks_of_shell_and_apptainer_in_them_are_bound_as_they_are(place, tells, tmp_path):
    odd = tmp_path / "a b,c:d$(id)'e\"f"
    odd.mkdir()
    (odd / "json.py").write_text("raise SystemExit('the current folder is not searched for modules')")
    assert Bind("/a,b", "/c").option()[1] == 'type=bind,"source=/a,b",destination=/c'
    place = Place(place.cache, place.site, place.image, (odd, *place.folders), (tells,))
    assert told(enter(place, *PRINT_ENVIRONMENT, TMPDIR=str(odd)))["cwd"] == str(odd)


def test_the_failure_of_apptainer_itself_is_told_apart_from_that_of_the_benchmark(lab, images, inside):
    lab.bench("run", lab.scenario("certified", **inside))
    there = images.python.stat()
    images.python.write_bytes(b"x" * there.st_size)  # broken, and by its size and time still the same
    os.utime(images.python, (there.st_atime, there.st_mtime))
    done = lab.bench("run", "--new", lab.scenario("certified", retries={"max_retries": 0}, **inside), code=1)
    reasons = [event.get("reason", "") for event in lab.events()]
    assert any("the container runtime itself failed, not what runs inside (exit 255)" in reason for reason in reasons)
    assert "lost" in done.stdout + done.stderr


def test_an_image_without_python_says_what_to_do_instead(lab, images):
    runtime = {"kind": "apptainer", "image": str(images.plain)}
    done = lab.bench("run", lab.scenario("certified", runtime=runtime), code=2)
    assert "has no Python, and the worker needs 3.11 or newer" in done.stderr
    assert "a service whose recipe names this image" in done.stderr


def test_a_package_that_is_not_in_the_image_is_named(lab, inside):
    lab.run("certified", code=1, **inside | {"binds": inside["binds"][1:]})
    (trial,) = lab.trials()
    assert trial.code == "not_in_image" and "'mischief'" in trial.meta["failure"]["message"]


def test_requirements_belong_into_the_image(place):
    with pytest.raises(BenchError, match=r"runtime.requirements has no effect"):
        ApptainerRuntime().prepare(Runtime(kind="apptainer", requirements=["x"]), place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "limits", "outcome"),
    [
        ("fill", {"memory": "200MB"}, "out_of_memory"),
        ("burn", {"wall": 1}, "timeout"),
        ("burn_below", {"cpu": 1}, "timeout"),
    ],
)
def test_limits_hold_inside(lab, inside, act, limits, outcome):
    lab.run("mischief", code=1, workload={"act": act}, limits=limits, **inside)
    (trial,) = lab.trials()
    assert trial.outcome == outcome
    assert "none" not in " ".join(trial.meta["limits"]["enforced_by"].values())
    lab.is_tidy()


def runs(pid):
    """Not a zombie, which is init's to take away."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["container", "worker", "bench"])
def test_a_killed_container_leaves_nothing(lab, inside, victim):
    scenario = lab.scenario("slow", workload={"seconds": 60}, retries={"max_retries": 0}, **inside)
    bench = lab.start("run", scenario)
    lab.wait_for_mark("slow-0-*")
    (mark,) = lab.marks.glob("slow-0-*")
    wait_until(lambda: mark.read_text(), "its pid")
    experiment = int(mark.read_text())
    worker = int(Path(f"/proc/{experiment}/stat").read_text().rpartition(")")[2].split()[1])
    pid = {"container": children(bench.pid)[0], "worker": worker, "bench": bench.pid}[victim]
    os.kill(pid, signal.SIGKILL)
    bench.communicate(timeout=60)
    wait_until(lambda: not lab.left_running() and not runs(experiment), "the end of all below", 50)
    mounts = Path("/proc/mounts").read_text()
    assert str(lab.root) not in mounts


@pytest.mark.slow
def test_a_stopped_run_ends_its_container(lab, inside):
    bench = lab.start("run", lab.scenario("slow", workload={"seconds": 60}, **inside))
    lab.wait_for_mark("slow-0-*")
    began = time.monotonic()
    lab.bench("stop")
    bench.communicate(timeout=60)
    assert time.monotonic() - began < 50
    lab.is_tidy()


def test_modules_of_the_site_are_loaded_where_there_are_any(place, tmp_path):
    site = Site(modules=("Apptainer/1.4", "CUDA"))
    place = Place(place.cache, site, place.image, place.folders)
    loaded = tmp_path / "loaded"
    function = {"BASH_FUNC_module%%": f'() {{ echo "noise"; echo "$@" >> {loaded}; [ "$2" != "$BAD" ]; }}'}
    assert enter(place, "-m", "benchhouse.worker", "--x").returncode == 2, "without `module` it goes on"
    done = enter(place, "-m", "benchhouse.worker", "--x", **function)
    assert done.returncode == 2 and done.stdout == "", "what modules print is no answer of the worker"
    assert loaded.read_text() == "load Apptainer/1.4\nload CUDA\n"
    bad = enter(place, "-m", "benchhouse.worker", "--x", BAD="CUDA", **function)
    assert bad.returncode == 94 and "module load CUDA failed" in bad.stderr


def test_gpus_are_shown_only_when_they_are_asked_for(place):
    runtime, spec = ApptainerRuntime(), Runtime(kind="apptainer")
    scripts = [
        runtime.container(spec, Place(place.cache, place.site, place.image, place.folders, (), gpus)).script
        for gpus in (0, 2)
    ]
    assert [("--nv" in script) for script in scripts] == [False, True]
    assert all(word not in script for script in scripts for word in ("--writable", "--fakeroot"))


def test_what_is_printed_by_a_dry_run_is_what_enters(lab, inside):
    lab.bench("run", lab.scenario("certified", **inside))
    printed = lab.bench("plan", lab.workspace / "s.yaml", "--dry-run").stdout
    (script,) = (lab.root / "cache" / "containers").glob("*/enter")
    assert script.read_text() in printed and str(script) in printed
    for check in (["bash", "-n"], ["shellcheck"]):
        subprocess.run([*check, script], check=True)


def test_evidence_names_the_image_also_after_another_was_pinned_under_its_name(lab, images, inside):
    lab.bench("run", lab.scenario("certified", **inside))
    (before,) = {trial.meta["container_digest"] for trial in lab.trials()}
    with images.python.open("ab") as file:
        file.write(b"\0" * 4096)
    lab.bench("images", "add", images.python)
    lab.bench("run", "--new", lab.workspace / "s.yaml")
    assert len({trial.meta["container_digest"] for trial in lab.trials()} - {before}) == 1
