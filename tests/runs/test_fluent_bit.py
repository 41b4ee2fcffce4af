"""The configuration of Fluent Bit follows the pods of runs alone, and holds no secret."""

import json

import yaml


def test_the_configuration_reads_pods_of_runs_and_names_the_password(bench, tmp_path):
    search = {"url": "https://ops:$SEARCH_PASSWORD@search.example.com/es", "prefix": "team"}
    (tmp_path / "workspace.yaml").write_text(json.dumps({"search": search}))
    made = yaml.safe_load(bench("logs", "fluent-bit").out)
    (output,) = made["pipeline"]["outputs"]
    assert (output["host"], output["port"], output["path"], output["tls"]) == ("search.example.com", 443, "/es", "on")
    assert (output["http_user"], output["http_passwd"]) == ("ops", "${SEARCH_PASSWORD}")
    assert output["index"] == "team-pods"
    grep = next(item for item in made["pipeline"]["filters"] if item["name"] == "grep")
    assert grep["regex"] == "$kubernetes['labels']['benchhouse.dev/run'] ."


def test_without_a_search_engine_or_with_a_key_it_is_refused(bench, tmp_path):
    none = bench("logs", "fluent-bit")
    assert none.code == 2 and "names no search engine" in none.err
    search = {"url": "https://host:9200", "api_key": "$SEARCH_API_KEY"}
    (tmp_path / "workspace.yaml").write_text(json.dumps({"search": search}))
    key = bench("logs", "fluent-bit")
    assert key.code == 2 and "given a login" in key.err
