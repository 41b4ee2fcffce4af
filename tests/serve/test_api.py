"""The HTTP API: what the Python API answers, with the same words for what is wrong."""

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from laboratory import Lab


def get(url: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    try:
        with urlopen(Request(url, headers=headers)) as answer:
            return answer.status, dict(answer.headers), json.loads(answer.read())
    except HTTPError as error:
        body = error.read()
        return error.code, dict(error.headers), json.loads(body) if body else None


@pytest.fixture(scope="module")
def site(tmp_path_factory, show):
    lab = Lab(tmp_path_factory.mktemp("api"))
    lab.run("once")
    return show(lab)


def test_an_answer_is_what_the_command_line_prints_and_has_an_etag(site):
    lab, base = site.lab, site.base
    status, headers, answer = get(f"{base}/api/runs/@last/status")
    assert status == 200
    assert answer == json.loads(lab.bench("status", "@last", "--json").stdout)
    assert get(f"{base}/api/runs/@last/status", **{"If-None-Match": headers["etag"]})[0] == 304


def test_errors_are_problems_with_the_words_of_the_command_line(site):
    lab, base = site.lab, site.base
    status, headers, answer = get(f"{base}/api/runs/nope/status")
    said = lab.bench("status", "nope", code=2).stderr
    assert status == 404 and headers["content-type"] == "application/problem+json"
    assert answer["title"] in said and answer["detail"] in said
    assert "x: Extra inputs" in get(f"{base}/api/runs/nope/status?x=1")[2]["detail"]
    assert get(f"{base}/api/nothing")[0] == 404


def test_the_openapi_document_has_every_verb(site):
    document = get(f"{site.base}/api/openapi.json")[2]
    assert document["openapi"] == "3.1.0"
    assert document["paths"]["/api/runs/{run}/status"]["get"]["operationId"] == "run_status"
    assert "RunStatus" in document["components"]["schemas"]
