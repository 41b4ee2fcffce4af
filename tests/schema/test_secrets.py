"""Which parameters are secrets, and that their values are blanked."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from benchhouse.schema.secrets import (
    REDACTED,
    credential,
    escape,
    exposed,
    holds_secret,
    is_secret_key,
    is_secret_variable,
    redactor,
    reference,
    resolve,
    secret_values,
    shows_secret,
    split_userinfo,
    user_and_password,
    without_secrets,
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


def test_keys_of_a_credentials_file_are_known(tmp_path):
    profiles = "[default]\naws_access_key_id = lab-id\naws_secret_access_key = a%b=c/d\nregion = us-east-1\n"
    (tmp_path / "credentials").write_text(profiles + "[other]\naws_session_token: tok en+\u00fc\n")
    (tmp_path / "token").write_text("hunter22\nsecond line\n")
    given = {"target": {"credentials_file": "credentials", "profile": "default"}}
    assert secret_values(given, {}, str(tmp_path)) == ["tok en+\u00fc", "a%b=c/d", "lab-id"]
    redact = redactor({"credentials_file": str(tmp_path / "credentials")}, {})
    assert redact("a%25b%3Dc%2Fd in us-east-1") == f"{REDACTED} in us-east-1"
    whole = redactor({"token_file": str(tmp_path / "token")}, {})
    assert whole("hunter22, second line") == f"{REDACTED}, {REDACTED}"
    assert secret_values({"credentials_file": str(tmp_path / "none"), "file": str(tmp_path / "token")}, {}) == []
    assert secret_values({"credentials_file": str(tmp_path)}, {}) == []


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


@pytest.mark.parametrize("name", ["Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "x-vault-token"])
def test_headers_that_carry_credentials_are_secrets(name):
    assert is_secret_key(name)


@pytest.mark.parametrize("name", ["Accept", "Content-Type", "X-Request-Id", "Host"])
def test_other_headers_are_none(name):
    assert not is_secret_key(name)


@pytest.mark.parametrize(
    ("value", "name"),
    [("$A", "A"), ("Bearer $A", "A"), ("session=${A}", "A"), ("Bearer abc", None), ("abc$A", None), (5, None)],
)
def test_the_credential_of_a_header_is_a_variable(value, name):
    assert credential(value) == name


@pytest.mark.parametrize(
    ("url", "address", "userinfo"),
    [
        ("http://me:hunter2@host:80/a", "http://host:80/a", "me:hunter2"),
        ("http://me:hun/ter2@host:80/a", "http://host:80/a", "me:hun/ter2"),
        ("http://me:hun?ter#2@host/a", "http://host/a", "me:hun?ter#2"),
        ("http://host:8000/a@b", "http://host:8000/a@b", ""),
        ("http://host/a:b@c", "http://host/a:b@c", ""),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b", ""),
        ("http://127.0.0.1:{port}/a@b", "http://127.0.0.1:{port}/a@b", ""),
        ("no address", "no address", ""),
    ],
)
def test_the_userinfo_of_an_address_is_split_off_also_with_a_slash_in_it(url, address, userinfo):
    assert split_userinfo(url) == (address, userinfo)
    assert "ter2" not in without_secrets(url)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("http://me:hun/ter2@host/metrics", "hun/ter2"),
        ("curl -H 'Authorization: Bearer hunter2'", "hunter2"),
        ("--api-key=hunter2", "hunter2"),
        ("https://host/data?token=hunter2", "hunter2"),
    ],
)
def test_more_places_where_secrets_stand_in_plain_text(text, secret):
    assert exposed(text) == secret


def test_a_variable_whose_value_is_an_address_with_a_password_is_a_secret_too():
    environ = {"METRICS": "http://me:hun/ter2@host", "PLAIN": "http://host"}
    assert holds_secret("METRICS", environ)
    assert not holds_secret("PLAIN", environ)
    assert resolve({"url": "$METRICS", "other": "$PLAIN"}, environ) == {"url": environ["METRICS"], "other": "$PLAIN"}
    assert secret_values({"url": "$METRICS"}, environ) == ["http://me:hun/ter2@host", "hun/ter2"]


def test_a_password_is_encoded_where_an_address_could_not_hold_it():
    environ = {"DB_PASSWORD": "a/b@c d%2F"}
    url = resolve("http://me:$DB_PASSWORD@host/$DB_PASSWORD", environ)
    assert url == "http://me:a%2Fb%40c%20d%2F@host/a/b@c d%2F"
    assert user_and_password("http://me:a%2Fb%40c@host") == ("http://host", "me", "a/b@c")


def test_what_is_escaped_reads_back_and_secrets_stay_references():
    environ = {"DB_PASSWORD": "x", "HOME": "/h"}
    written = {"url": "http://me:$DB_PASSWORD@host/$HOME", "headers": {"Authorization": "Bearer $ANY"}}
    assert escape(written, environ) == {
        "url": "http://me:$DB_PASSWORD@host/$$HOME", "headers": {"Authorization": "Bearer $ANY"},
    }  # fmt: skip


SECRET = 'hün/ter "2"&<x>+'


@pytest.mark.parametrize(
    "said",
    [
        SECRET,
        json.dumps({"a": SECRET}),
        json.dumps(json.dumps(SECRET)),
        quote(SECRET),
        quote_plus(SECRET),
        quote(quote(SECRET, safe=""), safe=""),
        html.escape(SECRET),
        repr(SECRET),
        repr(SECRET.encode()),
        SECRET.encode().hex(),
        *(b64encode(b"m" * many + SECRET.encode() + b"tail").decode() for many in range(4)),
        urlsafe_b64encode(f"me:{SECRET}".encode()).decode(),
    ],
)
def test_an_echo_is_blanked_in_every_encoding(said):
    blanked = redactor({"password": "$P"}, {"P": SECRET})(f"before {said} after")
    assert REDACTED in blanked
    assert len(blanked) < len(REDACTED) + 45  # at most the letters of base64 that belong to what stands beside it


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  environment: {HF_TOKEN: hunter2}", True),
        ("password: hunter2", True),
        ("url: http://me:hunter2@host", True),
        ("environment: {HF_TOKEN: $HF_TOKEN}", False),
        ("gen_tokens: 5", False),
    ],
)
def test_a_line_of_a_file_that_shows_a_secret_is_known(line, shown):
    assert shows_secret(line) is shown
