"""`bench images pin`: what tags of a registry stand for, kept in a lock, and asked for where a site demands it."""

import json

import pytest
from laboratory import warm_bench
from services.containers import apptainer as apptainer
from services.containers import images as images
from services.containers import unpacked as unpacked
from services.registry import registry as registry

from benchhouse.documents.yaml_reader import load_yaml

GIVEN = f"sha256:{'a' * 64}"
BOX = {
    "schema_version": 1,
    "name": "box",
    "program": ["no-such-program-on-any-host"],
    "image_program": "/bin/busybox",
    "command": ["{program}", "httpd", "-f", "-p", "127.0.0.1:{port}", "-h", "{folder}"],
    "files": {"index.html": "hello"},
    "endpoint": "http://127.0.0.1:{port}",
    "ready": {"kind": "http", "timeout": 120},
}


@pytest.fixture
def lock(lab):
    return lab.workspace / "images.lock.yaml"


@pytest.fixture
def pushed(registry, tmp_path):
    """Pushes a small image; another one for each text in it."""
    content = tmp_path / "content"
    content.mkdir()

    def push(tag, text):
        (content / "file").write_text(text)
        return registry.push("tools/box", tag, content, {})

    return push


def name(registry, tag="1.0"):
    return f"{registry.address}/tools/box:{tag}"


def images_verb(lab, *words, code=0):
    """`bench images`, without the start of an interpreter."""
    done = warm_bench().call(("images", *map(str, words)), lab.workspace, lab.environment(), 120)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def pins(lock):
    return {key: pin["digest"] for key, pin in load_yaml(lock).data["images"].items()}


def with_recipe(lab, **more):
    (lab.workspace / "recipes").mkdir(exist_ok=True)
    (lab.workspace / "recipes" / "box.yaml").write_text(json.dumps(BOX | more))


def demand_pins(lab):
    (lab.workspace / "site.yaml").write_text("site: strict\nimages: {pinned: required}\n")


def test_a_tag_that_moves_is_told_and_taken_only_when_asked_for(lab, lock, registry, pushed):
    first = pushed("1.0", "first")
    (made,) = json.loads(images_verb(lab, "pin", name(registry), "--json").stdout)
    assert (made["reference"], made["digest"], made["state"]) == (name(registry), first, "pinned")
    text = lock.read_text()
    assert text.startswith("# ") and pins(lock) == {name(registry): first}
    entry = load_yaml(lock).data["images"][name(registry)]
    assert entry["source"] == registry.address and entry["pinned"].startswith("20")
    done = images_verb(lab, "pin", "--check", name(registry))
    assert "unchanged" in done.stdout

    second = pushed("1.0", "second")
    assert "kept" in images_verb(lab, "pin", name(registry)).stdout
    done = images_verb(lab, "pin", "--check", name(registry), code=1)
    assert "moved" in done.stdout and f"bench images pin {name(registry)} --update" in done.stderr
    checked = json.loads(images_verb(lab, "pin", "--check", name(registry), "--json", code=1).stdout)
    assert (checked[0]["digest"], checked[0]["current"]) == (first, second)
    assert lock.read_text() == text
    assert "updated" in images_verb(lab, "pin", name(registry), "--update").stdout
    assert pins(lock) == {name(registry): second}
    images_verb(lab, "pin", "--check", name(registry))


def test_a_registry_that_is_down_leaves_the_lock_as_it_was(lab, lock, registry, pushed):
    pushed("1.0", "first")
    images_verb(lab, "pin", name(registry))
    before = lock.read_bytes()
    registry.stop()
    for words in ([name(registry, "2.0")], [name(registry), "--update"]):
        done = images_verb(lab, "pin", *words, code=1)
        assert f"the registry {registry.address} gives no answer: " in done.stderr
        assert "bring images.lock.yaml" in done.stderr and "Traceback" not in done.stderr
    done = images_verb(lab, "pin", "--check", name(registry), code=1)
    assert "check it again where the registry can be reached" in done.stderr
    assert lock.read_bytes() == before
    done = images_verb(lab, "pin", f"{name(registry, '2.0')}@{GIVEN}")
    assert "pinned" in done.stdout and pins(lock)[name(registry, "2.0")] == GIVEN


def test_what_one_registry_says_is_kept_where_another_is_silent(lab, lock, registry, pushed):
    digest = pushed("1.0", "first")
    names = [name(registry), "127.0.0.1:1/a:1", "127.0.0.1:1/b:1"]
    done = images_verb(lab, "pin", *names, code=1)
    assert pins(lock) == {name(registry): digest}
    assert done.stderr.count("the registry 127.0.0.1:1 gives no answer") == 1  # and is asked once
    assert done.stderr.count("asking 127.0.0.1:1") == 1


def test_a_name_that_the_registry_does_not_have_is_told(lab, lock, registry, pushed):
    pushed("1.0", "first")
    done = images_verb(lab, "pin", name(registry, "9.9"), code=1)
    assert "it answers 404" in done.stderr and "check name and tag" in done.stderr
    assert not lock.exists()


def test_an_image_that_cannot_be_pinned_is_refused_before_a_registry_gets_a_request(lab, lock):
    for word, part in (
        ("../../etc/passwd:1", "../../etc/passwd:1"),
        ("127.0.0.1:1/../v1/x:1", "127.0.0.1:1/../v1/x:1"),
        ("127.0.0.1:1/a", "version"),
        ("vlm", "'vllm'"),
        ("milvus_lite", "milvus_lite"),
        ("--check 127.0.0.1:1/a:1", "127.0.0.1:1/a:1"),
        ("--check --update", "one of them"),
        ("recipes/none.yaml", "none.yaml"),
    ):
        done = images_verb(lab, "pin", *word.split(), code=2)
        assert part in done.stderr and "asking" not in done.stderr, word
    assert not lock.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<<<<<<< HEAD\n", "images.lock.yaml:1"),
        ("schema_version: 1\nimages:\n  postgres:17: {digest: sha256:12, source: x, pinned: x}\n", "lock.yaml:3"),
        ("schema_version: 1\nimages:\n  ../x:1: {}\n", "does not name an image"),
    ],
)
def test_a_damaged_lock_is_told_with_its_line_and_nothing_runs(lab, lock, text, said):
    lock.write_text(text)
    assert said in images_verb(lab, "pin", f"a/b:1@{GIVEN}", code=2).stderr
    assert said in images_verb(lab, "list", code=2).stderr
    assert said in lab.bench("run", lab.scenario("plain"), code=2).stderr
    assert lock.read_text() == text and not list(lab.workspace.glob(".bench/runs/*"))


def test_several_may_pin_at_once_and_the_order_is_that_of_names(lab, lock):
    pinning = [lab.fork("images", "pin", f"127.0.0.1:1/a:{number}@{GIVEN}") for number in (3, 1, 4, 2)]
    assert [process.wait(120) for process in pinning] == [0] * 4
    assert list(pins(lock)) == [f"127.0.0.1:1/a:{at}" for at in range(1, 5)]
    assert not [path.name for path in lab.workspace.iterdir() if "images.lock" in path.name and path != lock]


def test_recipes_that_come_with_a_digest_need_no_registry(lab, lock):
    rows = json.loads(images_verb(lab, "pin", "vllm", "seaweedfs", "seaweedfs_cluster", "--json").stdout)
    assert [(row["state"], row["source"]) for row in rows] == [("kept", "recipe")] * 2
    assert not lock.exists()  # nothing that the recipes do not say
    images_verb(lab, "pin", f"docker.io/vllm/vllm-openai:v0.11.0@{GIVEN}")
    listed = json.loads(lab.bench("servers", "list", "--json").stdout)
    image = {row["recipe"]: row["image"] for row in listed}
    assert image["vllm"] == f"docker.io/vllm/vllm-openai:v0.11.0@{GIVEN}"
    assert image["milvus"] == "docker.io/milvusdb/milvus:v2.6.18" and image["milvus_lite"] is None


def test_the_list_names_what_is_pinned_and_was_not_pulled(lab, lock):
    images_verb(lab, "pin", f"a/b:1@{GIVEN}")
    assert "not pulled" in images_verb(lab, "list").stdout
    (row,) = json.loads(images_verb(lab, "list", "--json").stdout)
    assert (row["reference"], row["state"], row["path"]) == ("docker.io/a/b:1", "not pulled", "")


def test_a_site_that_demands_pins_refuses_a_server_without_one_before_anything_starts(lab, lock):
    with_recipe(lab, published="a/b:1")
    demand_pins(lab)
    scenario = lab.scenario("mischief", workload={"act": "ok"}, services={"web": {"recipe": "box"}})
    refusal = "box: the image docker.io/a/b:1 has no digest, and the site 'strict' demands one"
    for words in (("run", scenario), ("plan", scenario), ("servers", "start", "box")):
        done = lab.bench(*words, code=2)
        assert refusal in done.stderr and "bench images pin docker.io/a/b:1" in done.stderr
    assert not list(lab.workspace.glob(".bench/runs/*")) and not list(lab.workspace.glob(".bench/services/*"))
    assert not lab.folders()
    images_verb(lab, "pin", f"a/b:1@{GIVEN}")
    lab.bench("plan", scenario)
    done = lab.bench("servers", "start", "box", code=1)  # it may start, and nobody pulled the image
    assert f"bench images pull docker.io/a/b:1@{GIVEN}" in done.stderr
    lab.is_tidy()


@pytest.mark.parametrize(
    "more",
    [
        {"published": f"a/b:1@{GIVEN}"},  # a digest of its own
        {"image": f"a/b@{GIVEN}"},
        {"published": "a/b:1", "program": ["python3"]},  # it is installed, and no image is needed
        {"program": ["no-such-program-on-any-host"]},  # it has no image at all
    ],
)
def test_a_site_that_demands_pins_lets_in_what_is_pinned_or_no_image(lab, more):
    with_recipe(lab, **more)
    demand_pins(lab)
    lab.bench("plan", lab.scenario("mischief", workload={"act": "ok"}, services={"web": {"recipe": "box"}}))


STARTER = """
from benchhouse import Context, experiment
from benchhouse.schema.recipe import Recipe

@experiment("starter", version="1.0")
def starter(ctx: Context, n: int = 0):
    ctx.service(Recipe.model_validate(RECIPE))
"""


def test_a_server_that_an_experiment_starts_itself_is_pinned_too(lab, lock):
    code = f"RECIPE = {BOX | {'published': 'a/b:1'}!r}\n{STARTER}"
    lab.install("starter", "1.0", code, "[benchhouse.experiments]\nstarter = starter:starter\n")
    images_verb(lab, "pin", f"a/b:1@{GIVEN}")
    lab.run("starter", code=1)
    (trial,) = lab.trials()
    assert trial.code == "no_such_program" and trial.spec["image_pins"] == {"docker.io/a/b:1": GIVEN}
    assert f"bench images pull docker.io/a/b:1@{GIVEN}" in trial.meta["failure"]["message"]  # nobody pulled it


def test_pins_change_no_plan(lab, lock):
    with_recipe(lab, published="a/b:1")
    scenario = lab.scenario("mischief", workload={"act": "ok"}, services={"web": {"recipe": "box"}})

    def digest():
        return json.loads(lab.bench("plan", scenario, "--json").stdout)["plan_digest"]

    before = digest()
    images_verb(lab, "pin", f"a/b:1@{GIVEN}")
    assert digest() == before


def test_the_pinned_digest_is_pulled_run_and_told_in_the_evidence(lab, lock, registry, unpacked):
    lab.variables["WORK"] = str(lab.root / "work")
    with_recipe(lab, published=name(registry))
    demand_pins(lab)
    digest = registry.push("tools/box", "1.0", unpacked, {})
    images_verb(lab, "pin", "box")
    registry.push("tools/box", "1.0", unpacked, {"changed": "yes"})  # the tag moves on, the lock does not
    done = images_verb(lab, "pull", name(registry), "--json")
    pulled = json.loads(done.stdout)
    assert pulled["source_digest"] == digest and "is pinned to" in done.stderr
    (row,) = json.loads(images_verb(lab, "list", "--json").stdout)
    assert row["reference"] == name(registry) and row["source_digest"] == digest
    reference = f"{name(registry)}@{digest}"
    for mode in ("embedded", "attached"):
        lab.run("mischief", name=mode, workload={"act": "ok"}, services={"web": {"recipe": "box", "mode": mode}})
        (trial,) = lab.trials(mode)
        facts = trial.meta["custom"]["services"]["web"]
        assert (facts["image"], facts["reference"]) == (pulled["sha256"], reference)
        assert trial.spec["services"]["web"]["recipe"]["published"] == reference
    query = "SELECT DISTINCT server_version, server_image, servers FROM software_version_dim"
    rows = [dict(row) for row in json.loads(lab.bench("query", query, "--json").stdout)["rows"]]
    assert {row["server_version"] for row in rows} == {name(registry)}
    assert {row["server_image"] for row in rows} == {pulled["sha256"]}
    assert all(reference in row["servers"] for row in rows)
    records = [json.loads(path.read_text()) for path in lab.workspace.glob(".bench/runs/*/run.json")]
    assert len(records) == 2 and all("server image" in record["conditions"] for record in records)
    lab.is_tidy()
