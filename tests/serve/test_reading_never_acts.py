"""A client that may only read can't make the server start a program, build a package, or read files elsewhere."""

import json

import pytest
from agents import over_http, over_stdio
from asking import ask

ABSENT = {"scenario": "s", "experiment": "absent.experiment"}


@pytest.fixture
def planted(lab):
    """Return scenarios that would run `planted`, which leaves a mark, if planning made or entered their environment."""
    program = lab.root / "planted"
    program.write_text(f"#!/bin/sh\ntouch {lab.marks}/started\n")
    program.chmod(0o755)
    package = lab.root / "package"
    package.mkdir()
    (package / "setup.py").write_text(f"open({str(lab.marks / 'started')!r}, 'w')\n")
    environments = [
        {"python": str(program), "requirements": ["absent-package"]},
        {"requirements": [f"absent-package @ {package.as_uri()}"]},
        {"requirements": [str(package)]},
        {"requirements": ["absent-package"], "environments": [[str(package)], ["x" * 5000]]},
    ]
    return [ABSENT | {"runtime": {"kind": "venv", **environment}} for environment in environments]


def test_planning_for_a_reader_neither_makes_nor_enters_an_environment(lab, serve, planted):
    base = serve()
    for scenario in planted:
        for verb in ("plan", "validate"):
            body = json.dumps({"scenario": scenario})
            status, _, text = ask(base, f"/api/{verb}", "POST", body, Content_Type="application/json")
            assert status == 403, (verb, scenario, text)
            assert "role run" in json.loads(text)["title"]

    async def call(client):
        return [await client.call_tool(tool, {"scenario": item}) for item in planted for tool in ("plan", "validate")]

    answers = [*over_http(base, call), *over_stdio(lab, call)[0]]
    assert [answer.is_error for answer in answers] == [True] * 16
    assert list(lab.marks.iterdir()) == []
    assert not (lab.root / "cache" / "venvs").exists()
