"""Which parameters are secrets, and that their values are blanked."""

import pytest

from benchhouse.schema.secrets import (
    REDACTED,
    exposed,
    is_secret_key,
    is_secret_variable,
    redactor,
    reference,
    resolve,
    secret_values,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "api_key",
        "apikey",
        "API_KEY",
        "db.password",
        "hf_token",
        "token",
        "access-key",
        "client_secret",
        "private_key",
    ],
)
def test_names_of_secrets(name):
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name",
    ["tokens", "gen_tokens", "max_token", "key", "keyword", "monkey", "tokenizer", "secretary", "passwords_file"],
)
def test_names_that_only_look_like_it(name):
    assert not is_secret_key(name)


@pytest.mark.parametrize(
    ("value", "name"), [("$A", "A"), ("${A_1}", "A_1"), ("$A/x", None), ("A", None), ("$", None), (5, None)]
)
def test_references(value, name):
    assert reference(value) == name


def test_only_secrets_are_resolved_at_any_depth():
    given = {"api_key": "$K", "path": "$K", "inner": [{"password": "${P}"}], "token": "$UNSET"}
    assert resolve(given, {"K": "k1", "P": "p1"}) == {
        "api_key": "k1", "path": "$K", "inner": [{"password": "p1"}], "token": "$UNSET",
    }  # fmt: skip


def test_secret_values_come_longest_first_so_that_none_is_blanked_in_part():
    environ = {"A": "abcd", "B": "abcdefgh"}
    given = {"password": "$A", "api_key": "$B"}
    assert secret_values(given, environ) == ["abcdefgh", "abcd"]
    assert redactor(given, environ)("x abcdefgh y abcd z") == f"x {REDACTED} y {REDACTED} z"


def test_secrets_in_lists_are_known_too():
    assert secret_values({"api_key": ["$A", "$B"]}, {"A": "first", "B": "second"}) == ["second", "first"]


def test_well_known_shapes_are_blanked_without_being_named():
    redact = redactor({}, {})
    assert redact("key AKIAABCDEFGHIJKLMNOP.") == f"key {REDACTED}."
    assert redact("hf_" + "a" * 34) == REDACTED
    assert redact("nothing secret") == "nothing secret"


@pytest.mark.parametrize(
    ("name", "secret"),
    [("HF_TOKEN", True), ("GITHUB_TOKEN", True), ("MYSQL_PWD", True), ("AWS_SECRET_ACCESS_KEY", True),
     ("DB_PASSWORD", True), ("PWD", False), ("HOME", False), ("TOKENIZERS_PARALLELISM", False), ("KEYBOARD", False)],
)  # fmt: skip
def test_a_variable_is_a_secret_by_its_name(name, secret):
    assert is_secret_variable(name) is secret


def test_a_secret_variable_is_put_in_late_wherever_it_stands():
    environ = {"HF_TOKEN": "hf-123456", "HOME": "/home/x"}
    parameters = {"argv": ["curl", "-H", "Bearer $HF_TOKEN", "$HOME"], "environment": {"MYVAR": "${HF_TOKEN}"}}
    resolved = resolve(parameters, environ)
    assert resolved == {
        "argv": ["curl", "-H", "Bearer hf-123456", "$HOME"],
        "environment": {"MYVAR": "hf-123456"},
    }
    assert secret_values(parameters, environ) == ["hf-123456"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql://me:hunter2@host:5432/db", "hunter2"),
        ("http://:hunter2@host", "hunter2"),
        ("https://hunter2@host:8080?grpc=50051", "hunter2"),
        ("http://$KEY@host", "$KEY"),
        ("host=a password='hun ter' dbname=b", "hun ter"),
        ("postgresql://host/db?password=hunter2&sslmode=require", "hunter2"),
        ("postgresql://me:$PW@host/db", "$PW"),
        ("Bearer sk-0123456789abcdefghij", "sk-0123456789abcdefghij"),
    ],
)
def test_a_secret_inside_a_text_is_seen(text, secret):
    assert exposed(text) == secret


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@host:5432/db",
        "postgresql://me:$DB_PASSWORD@host/db",
        "postgresql://me:${DB_PASSWORD}@host/db",
        "http://127.0.0.1:8000/a@b",
        "https://$MY_API_KEY@host",
        "host=a password=$PGPASSWORD",
        "a password is needed",
        "",
    ],
)
def test_an_address_without_a_secret_or_with_its_variable_is_nothing(text):
    assert exposed(text) is None
