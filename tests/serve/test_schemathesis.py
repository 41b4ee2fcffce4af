"""Questions that schemathesis makes from the OpenAPI document, right ones and wrong ones: no server error."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

SLOW = ("/api/verify",)  # all evidence is hashed

WAIT_S = 120.0
QUICK = settings(
    max_examples=1, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow("schemathesis sends two requests to every operation that reads")
def test_no_question_is_a_server_error(lab, serve):
    import schemathesis

    lab.bench("run", lab.scenario("once"))
    base = serve("--rate", "100000")
    schema = schemathesis.openapi.from_url(f"{base}/api/openapi.json", timeout=WAIT_S)
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        reads = operation.definition.raw["description"].startswith("For the role read,")
        if operation.path in SLOW or not reads:
            continue
        for mode in schemathesis.GenerationMode:
            try:
                strategy = operation.as_strategy(generation_mode=mode)
            except schemathesis.errors.InvalidSchema:
                continue

            @QUICK
            @given(strategy)
            def ask(case: Any) -> None:
                nonlocal asked
                answer = case.call(base_url=base, timeout=WAIT_S)
                asked += 1
                assert answer.status_code < 500, (case.method, case.path, answer.text)
                assert "Traceback (most recent" not in answer.text

            with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with a question that has no parts
                ask()
    assert asked > 80
