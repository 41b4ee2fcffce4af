"""Names of images in registries, and the lock that says what they stand for."""

import pytest
from pydantic import ValidationError
from tables import check_table

from benchhouse.schema.image import ImageLock, Pin, parse_reference, with_digest
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceUse, TrialService

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
LEAST = {"name": "r", "program": ["x"], "command": ["{program}"], "endpoint": "http://127.0.0.1:{port}"}


@check_table(
    "text, whole",
    [
        ("postgres:17", "docker.io/library/postgres:17"),
        ("docker.io/postgres:17", "docker.io/library/postgres:17"),
        ("index.docker.io/library/postgres:17", "docker.io/library/postgres:17"),
        ("vllm/vllm-openai:v0.11.0", "docker.io/vllm/vllm-openai:v0.11.0"),
        ("nvcr.io/nvidia/tritonserver:25.06-py3", "nvcr.io/nvidia/tritonserver:25.06-py3"),
        ("localhost/a/b__c:1", "localhost/a/b__c:1"),
        ("127.0.0.1:5000/a@" + DIGEST, "127.0.0.1:5000/a@" + DIGEST),
        ("quay.io/a/b:1@" + DIGEST, "quay.io/a/b:1@" + DIGEST),
        ("busybox", "docker.io/library/busybox"),
    ],
)
def test_one_image_has_one_name_however_it_is_written(text, whole):
    assert str(parse_reference(text)) == whole
    assert str(parse_reference(whole)) == whole


@check_table(
    "text",
    [
        "", "..", "../x:1", "a/../b:1", "a//b:1", "/a:1", "a/:1", "a:1:2", "a b:1", "A/b:1", "docker.io/A:1", "a:",
        "a:-1", "a:1@sha256:12", "a@md5:12", "a:1\n", "ho_st.io/a:1", "..io/a:1", "host.io:x/a:1",
        "host.io:1/../../v1/x:1", "user:pass@host.io/a:1", "a?b:1", "a#b:1", "http://host.io/a:1",
        "é.io/a:1", "a:" + "x" * 129,
    ],
)  # fmt: skip
def test_an_invalid_image_name_never_becomes_part_of_an_address(text):
    with pytest.raises(ValueError, match="does not name an image"):
        parse_reference(text)


def test_the_lock_gives_a_published_image_its_digest_and_goes_before_that_of_the_recipe():
    lock = ImageLock.model_validate(
        {"images": {"postgres:17": {"digest": DIGEST, "source": "docker.io", "pinned": "2026-01-01"}}}
    )
    assert list(lock.images) == ["docker.io/library/postgres:17"]
    assert with_digest("docker.io/library/postgres:17", lock.digests) == f"docker.io/library/postgres:17@{DIGEST}"
    assert (
        with_digest(f"docker.io/library/postgres:17@{OTHER}", lock.digests) == f"docker.io/library/postgres:17@{DIGEST}"
    )
    assert with_digest("docker.io/library/postgres:18", lock.digests) == "docker.io/library/postgres:18"
    assert with_digest("", lock.digests) == ""


@check_table("key", ["postgres", f"postgres:17@{DIGEST}", "../x:1"])
def test_a_lock_has_names_with_tags_and_without_digests(key):
    with pytest.raises(ValidationError):
        ImageLock.model_validate({"images": {key: {"digest": DIGEST, "source": "x", "pinned": "x"}}})
    with pytest.raises(ValidationError):
        Pin(digest="sha256:12", source="x", pinned="x")


@check_table(
    "published, said",
    [
        ("qdrant/qdrant", "names no version"),
        ("qdrant/qdrant:latest", "another image tomorrow"),
        (f"qdrant/qdrant:latest@{DIGEST}", "another image tomorrow"),
        ("../qdrant:1", "does not name an image"),
    ],
)
def test_a_recipe_publishes_an_exact_version(published, said):
    with pytest.raises(ValidationError, match=said):
        Recipe.model_validate(LEAST | {"published": published})


def test_a_published_image_is_used_once_it_has_a_digest():
    recipe = Recipe.model_validate(LEAST | {"published": "qdrant/qdrant:v1"})
    assert recipe.published == "docker.io/qdrant/qdrant:v1" and recipe.pinned_image == ""
    pinned = Recipe.model_validate(LEAST | {"published": f"qdrant/qdrant:v1@{DIGEST}"})
    assert pinned.pinned_image == f"docker.io/qdrant/qdrant:v1@{DIGEST}"
    own = Recipe.model_validate(LEAST | {"published": "qdrant/qdrant:v1", "image": f"mirror/q@{OTHER}"})
    assert own.pinned_image == f"mirror/q@{OTHER}"


def test_what_is_published_is_no_part_of_what_is_planned():
    """As the version of a program is none: plans of before have the digest they had, and a lock changes none."""

    def identity(**more):
        return TrialService(use=ServiceUse(recipe="r"), recipe=Recipe.model_validate(LEAST | more)).identity()

    plain = identity()
    assert not {"published", "image_program"} & plain["recipe"].keys()
    assert identity(published=f"a/b:1@{DIGEST}", image_program="/bin/b") == plain
    assert identity(image=f"a/b@{DIGEST}") != plain
    assert identity(image=f"a/b@{DIGEST}", image_program="/bin/b") != identity(image=f"a/b@{DIGEST}")
