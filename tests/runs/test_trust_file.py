"""trusted.yaml: people, keys and budgets."""

import pytest
from tables import check_rows

from benchhouse.documents.problems import ProblemsError
from benchhouse.runs.trust_file import read_trusted
from benchhouse.schema.layout import WorkspaceFolder

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBtyUx1t8wVUhrz2mMUBHkWyZCBmQyDqw3mUeXuP1fTe"


def read(folder, text):
    (folder / "trusted.yaml").write_text(text)
    return read_trusted(WorkspaceFolder(folder))


def test_who_is_in_the_file_has_its_own_budget_and_everybody_else_the_common_one(tmp_path):
    text = f"people: {{ada: {{role: approve, github: Ada-L, keys: [{KEY}], budget: {{gpu_hours: 8}}}}, bo: {{}}}}\n"
    trusted = read(tmp_path, text + "budget: {trials: 20}\n")
    assert trusted.allowance("ada").gpu_hours == 8 and trusted.allowance("ada").trials is None
    assert trusted.allowance("bo").trials == trusted.allowance("stranger").trials == 20
    name, person = trusted.by_github("ada-l")
    assert (name, person.role) == ("ada", "approve")
    assert trusted.by_github("") is None and trusted.by_github("bo") is None


def test_a_mistake_is_told_with_its_place(tmp_path):
    rows = [
        ("ada: {role: owner}", "trusted.yaml:1:"),
        ("ada: {keys: [AAAA]}", "no public key of OpenSSH"),
        ("ada: {github: 'a b'}", "no login of GitHub"),
        ("ada: {github: ada}, bo: {github: ADA}", "stands for ada and for bo"),
        (f"ada: {{keys: ['{KEY} laptop']}}, bo: {{keys: ['{KEY} desk']}}", "stands for ada and for bo"),
    ]

    def check(people, says):
        with pytest.raises(ProblemsError) as told:
            read(tmp_path, f"people: {{{people}}}\n")
        assert says in str(told.value) and "trusted.yaml:1" in str(told.value)

    check_rows(check, rows)


def test_a_mistake_about_keys_and_packages_is_told_with_its_place(tmp_path):
    rows = [
        ("key_ends: [{key: x, until: 2027-01-31, why: y}]", "no public key of OpenSSH"),
        (f"key_ends: [{{key: '{KEY}', until: soon, why: y}}]", "is no day: write 2027-01-31"),
        (f"key_ends: [{{key: '{KEY}', until: 2027-01-31}}]", "why"),
        ("packages: {max_age: 7d}", "a scan needs advisories"),
        ("packages: {scans: required, signatures: required}", "a scan needs advisories"),
        ("packages: {signatures: perhaps}", "required"),
    ]

    def check(line, says):
        with pytest.raises(ProblemsError) as told:
            read(tmp_path, f"people: {{ada: {{}}}}\n{line}\n")
        assert says in str(told.value) and "trusted.yaml:2" in str(told.value)

    check_rows(check, rows)


def test_without_the_file_nobody_is_limited(tmp_path):
    assert read_trusted(WorkspaceFolder(tmp_path)) is None
