"""`make affected` selects every test file that a change can break, and says why."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def dependencies():
    sys.path.insert(0, str(SCRIPTS))
    import affected_tests

    sys.path.remove(str(SCRIPTS))
    return affected_tests.Dependencies()


@pytest.fixture(scope="module")
def selection(dependencies):
    """Return a function that lists the affected test files for a changed file, each with its chain of imports."""
    from affected_tests import changed_nodes

    def select(path: str) -> dict[str, list[str]]:
        changed = set(changed_nodes(path, dependencies))
        chains = {test: dependencies.why(test, changed) for test in dependencies.tests}
        return {test: chain for test, chain in chains.items() if chain}

    return select


def test_a_change_selects_direct_importers_users_of_the_verb_and_users_of_the_plugin(selection):
    driver = selection("src/benchhouse/drivers/openai.py")
    assert driver["tests/drivers/test_openai.py"] == ["tests/drivers/test_openai.py", "benchhouse.drivers.openai"]
    assert "tests/experiments/serving/test_load.py" in driver
    assert not any(test.startswith(("tests/plan/", "tests/analysis/")) for test in driver)
    verb = selection("src/benchhouse/cli/verbs/verify.py")
    assert verb["tests/cli/test_verify.py"][-1] == "benchhouse.cli.verbs.verify"
    assert "tests/plan/test_axes.py" not in verb


def test_a_verb_needs_what_its_methods_of_the_workspace_import(dependencies):
    needs = dependencies.needs["benchhouse.cli.verbs.gate"]
    assert "benchhouse.api.gates" in needs
    assert not needs & {"benchhouse.api.workspace", "benchhouse.api.slo"}


def test_changed_tests_helpers_and_documents_select_the_tests_that_use_them(selection):
    assert list(selection("tests/plan/test_axes.py")) == ["tests/plan/test_axes.py"]
    assert "tests/drivers/test_triton.py" in selection("tests/services/triton.py")
    assert "tests/docs/test_quickstart.py" in selection("docs/quickstart.md")
