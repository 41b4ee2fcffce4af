"""Every recipe that comes with Benchhouse: those whose server can be had are started, asked and ended for real."""

import os
import shutil
import urllib.request
from pathlib import Path

import pytest
from laboratory import wait_until
from services import llm, triton
from services.started import running

from benchhouse.catalog.entries import entries, plug
from benchhouse.catalog.recipes import load_recipe

PLAIN = ["chroma", "milvus_lite", "node_exporter", "postgres", "prometheus", "seaweedfs"]
SPANNING = {"seaweedfs_cluster"}  # several nodes: tests/executors/test_slurm_jobs.py
NOT_TO_BE_HAD = {"milvus", "qdrant", "weaviate"}


def said(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read()
    except OSError:
        return b""


def program_is_here(name):
    found = plug("recipes", name).program[0]
    return name not in ("node_exporter", "prometheus") or shutil.which(found) is not None


def test_every_shipped_recipe_is_tried_here_or_named_as_not_to_be_had():
    assert {entry.name for entry in entries("recipes")} == {
        *PLAIN, "triton", "llama_cpp", "vllm", *SPANNING, *NOT_TO_BE_HAD
    }  # fmt: skip


def test_every_shipped_recipe_with_a_public_image_names_its_exact_version():
    published = {entry.name: plug("recipes", entry.name).published for entry in entries("recipes")}
    assert {name for name, image in published.items() if not image} == {"llama_cpp", "milvus_lite"}
    unpinned = {name for name, image in published.items() if image and "@sha256:" not in image}
    assert unpinned == {"milvus", "triton", "weaviate"}  # `bench images pin` asks for these


def test_every_shipped_recipe_written_as_yaml_is_the_same_recipe(tmp_path):
    from benchhouse.api.servers import recipe_text

    for entry in entries("recipes"):
        recipe = plug("recipes", entry.name)
        assert recipe.name == entry.name and recipe.licence and recipe.description and recipe.install
        path = tmp_path / "r.yaml"
        path.write_text(recipe_text(recipe))
        assert load_recipe(path) == recipe


@pytest.mark.parametrize("name", PLAIN)
def test_a_server_comes_up_answers_and_is_gone_afterwards(name):
    if not program_is_here(name):
        pytest.skip(f"{name} is not installed")
    with running(plug("recipes", name)) as service:
        assert service.start_s < 60
        if service.metrics:
            assert b"# TYPE" in urllib.request.urlopen(service.metrics, timeout=5).read()
        folder, pid = service.folder, service.pid
    assert not folder.exists() and not Path(f"/proc/{pid}").exists()


def test_llama_cpp_serves_a_model_that_is_given():
    try:
        python = llm.installed("llama", llm.cache() / "llm", wait_s=180)
    except llm.NoServerError as reason:
        pytest.skip(str(reason))
    parameters = {"program": str(python), "model": str(llm.tiny_gguf(python)), "name": "tiny"}
    with running(plug("recipes", "llama_cpp"), parameters) as service:
        with urllib.request.urlopen(f"{service.endpoint}/v1/models", timeout=5) as answer:
            assert b'"tiny"' in answer.read()
        assert b"llamacpp:" in urllib.request.urlopen(service.metrics, timeout=5).read()


@pytest.mark.slow("vLLM on the CPU takes up to three minutes to start; skipped where its environment is not made")
@pytest.mark.timeout(400)
def test_vllm_serves_a_model_that_is_given(monkeypatch):
    try:
        python = llm.installed("vllm", llm.cache() / "vllm", wait_s=0)
    except llm.NoServerError as reason:
        pytest.skip(str(reason))
    folder = llm.tiny_model.write_checkpoint(llm.model_path())
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "1")
    parameters = {"program": str(python.parent / "vllm"), "model": str(folder), "name": "tiny", "dtype": "float32"}
    with running(plug("recipes", "vllm"), parameters | {"max_model_len": "1024", "max_num_seqs": "8"}) as service:
        with urllib.request.urlopen(f"{service.endpoint}/v1/models", timeout=5) as answer:
            assert b'"tiny"' in answer.read()
        assert b"vllm:" in urllib.request.urlopen(service.metrics, timeout=5).read()


def test_triton_serves_a_model_repository_that_is_given(tmp_path):
    try:
        home = triton.install()
    except triton.CannotInstallError as reason:
        pytest.skip(f"no Triton server: {reason}")
    shutil.copytree(triton.HERE / "triton_models" / "identity_fp32", tmp_path / "identity_fp32")
    variables = triton.environment(home)
    parameters = {
        "program": triton.command(home, tmp_path, 0, 0)[0],
        "models": str(tmp_path),
        "backends": str(home / "backends"),
        "library_path": variables["LD_LIBRARY_PATH"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", variables["PATH"])
        with running(plug("recipes", "triton"), parameters) as service:
            with urllib.request.urlopen(f"{service.endpoint}/v2/models/identity_fp32/ready", timeout=5) as answer:
                assert answer.status == 200
            wait_until(lambda: b"nv_inference" in said(service.metrics), "its metrics")  # a moment after it is ready
