"""Which parameters are secrets, and that their values are blanked."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

from tables import check_table

from benchhouse.schema.secrets import (
    REDACTED,
    blanker,
    credential,
    echoes,
    escape,
    exposed,
    holds_secret,
    is_made_up,
    is_plain_secret,
    is_secret_key,
    is_secret_variable,
    make_up,
    mentioned,
    redact_keys,
    redactor,
    reference,
    resolve,
    secret_values,
    shows_secret,
    split_userinfo,
    user_and_password,
    without_secrets,
)


@check_table(
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


@check_table(
    "name",
    ["tokens", "gen_tokens", "max_token", "key", "keyword", "monkey", "tokenizer", "secretary", "passwords_file"],
)
def test_names_that_only_look_like_it(name):
    assert not is_secret_key(name)


@check_table("value, name", [("$A", "A"), ("${A_1}", "A_1"), ("$A/x", None), ("A", None), ("$", None), (5, None)])
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


@check_table(
    "name, secret",
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


@check_table(
    "text, secret",
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


@check_table(
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


@check_table("name", ["Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "x-vault-token"])
def test_headers_that_carry_credentials_are_secrets(name):
    assert is_secret_key(name)


@check_table("name", ["Accept", "Content-Type", "X-Request-Id", "Host"])
def test_other_headers_are_not_secrets(name):
    assert not is_secret_key(name)


@check_table(
    "value, name",
    [("$A", "A"), ("Bearer $A", "A"), ("session=${A}", "A"), ("Bearer abc", None), ("abc$A", None), (5, None)],
)
def test_the_credential_of_a_header_is_a_variable(value, name):
    assert credential(value) == name


@check_table(
    "url, address, userinfo",
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


@check_table(
    "text, secret",
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


@check_table(
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


@check_table(
    "line, shown",
    [
        ("  environment: {HF_TOKEN: hunter2}", True),
        ("password: hunter2", True),
        ("url: http://me:hunter2@host", True),
        ("environment: {HF_TOKEN: $HF_TOKEN}", False),
        ("gen_tokens: 5", False),
        ("a: 1, password: hunter2", True),
        ("'api_key': hunter2", True),
        ("name: password", False),
        ("key AKIAABCDEFGHIJKLMNOP", True),
        ("", False),
    ],
)
def test_a_line_of_a_file_that_shows_a_secret_is_known(line, shown):
    assert shows_secret(line) is shown


def test_of_a_secret_of_several_lines_each_line_of_eight_letters_is_one_too():
    environ = {"P": "-first-line-\nabcdefgh\nabcdefg\n"}
    assert secret_values({"password": "$P"}, environ) == [environ["P"], "-first-line-", "abcdefgh"]
    assert redactor({"password": "$P"}, environ)("x abcdefgh y abcdefg") == f"x {REDACTED} y abcdefg"


def test_a_secret_of_fewer_than_four_letters_is_not_looked_for():
    assert secret_values({"password": "$A", "token": "$B"}, {"A": "abc", "B": "abcd"}) == ["abcd"]


def test_variables_with_the_name_of_a_secret_are_secrets_although_nothing_refers_to_them():
    environ = {"DEPLOY_TOKEN": "abcdefgh", "SORT_KEY": "name", "HOME": "/home/ada", "DB_PASSWORD": "line one\nline two"}
    found = ["line one\nline two", "abcdefgh", "line one", "line two"]
    assert sorted(secret_values({}, environ)) == sorted(found)


def test_variables_that_drivers_read_are_secrets_although_nothing_names_them():
    environ = {"AWS_SECRET_ACCESS_KEY": "secret1", "AWS_SESSION_TOKEN": "secret22", "PGPASSWORD": "secret333"}
    assert secret_values({}, environ) == ["secret333", "secret22", "secret1"]


@check_table(
    "text, names",
    [("$A and ${B_1}$C", {"A", "B_1", "C"}), ("$$ $9 ${} $", set()), ("a$_x", {"_x"}), ("", set()), ("${9}", {"9"})],
)
def test_every_variable_that_a_text_mentions_is_found(text, names):
    assert mentioned(text) == names


@check_table(
    "variable, value, plain",
    [
        ("HF_TOKEN", "abc", True),
        ("HF_TOKEN", "$MINE", False),
        ("HF_TOKEN", "Bearer ${MINE}", False),
        ("HF_TOKEN", "x$MINE", True),
        ("HOME", "abc", False),
        ("HOME", "http://me:hunter2@host", True),
    ],
)
def test_a_variable_that_shows_its_secret_in_the_file_is_known(variable, value, plain):
    assert is_plain_secret(variable, value) is plain


def test_a_secret_that_is_made_up_is_new_each_time_and_known_as_one():
    assert is_made_up(make_up()) and not is_made_up("hunter2")
    assert len({make_up() for _ in range(3)}) == 3 and len(make_up()) == len("made-up-") + 32


def test_lists_keep_the_key_that_they_stand_under_and_what_is_no_text_stays():
    given = {"password": ["$K", "${K}x", 5, None], "other": ["$K", True], 3: "$K"}
    assert resolve(given, {"K": "k1"}) == {"password": ["k1", "k1x", 5, None], "other": ["$K", True], 3: "$K"}
    assert escape({"password": ["$K", 5], "other": ["$K", "a$", 5]}, {"K": "k1"}) == {
        "password": ["$K", 5],
        "other": ["$$K", "a$$", 5],
    }
    environ = {"DB_PASSWORD": "x", "API_KEY": "y"}
    assert escape("$a$DB_PASSWORD$b${API_KEY}$", environ) == "$$a$DB_PASSWORD$$b${API_KEY}$$"


def test_only_the_part_before_the_host_is_encoded():
    environ = {"DB_PASSWORD": "a/?#@[] b", "API_KEY": "c/d"}
    assert resolve("$API_KEY http://$DB_PASSWORD@h/$API_KEY", environ) == "c/d http://a%2F%3F%23%40%5B%5D%20b@h/c/d"


def test_an_address_for_messages_has_neither_credentials_nor_query():
    assert without_secrets("http://me:p@host/a?key=1#x") == "http://host/a"
    assert without_secrets("http://host/a#x?key=1") == "http://host/a"
    assert user_and_password("http://host") == ("http://host", "", "")
    assert user_and_password("http://m%40e:p%3Aq:r@host/x") == ("http://host/x", "m@e", "p:q:r")


@check_table(
    "form",
    [
        "päss/w\"o'&<r>\\d",  # as it is
        "p\\u00e4ss/w\\\"o'&<r>\\\\d",  # JSON
        "päss/w\\\"o'&<r>\\\\d",
        "p\\u00e4ss\\/w\\\"o'&<r>\\\\d",
        "päss/w&quot;o&#x27;&amp;&lt;r&gt;\\d",  # HTML
        "päss/w&#34;o&#39;&amp;&lt;r&gt;\\d",
        "päss/w\"o'&amp;&lt;r&gt;\\d",
        "päss%2Fw\"o'&<r>\\d",  # an address
        "p%C3%A4ss/w%22o%27%26%3Cr%3E%5Cd",
        "p%c3%a4ss%2fw%22o%27%26%3cr%3e%5cd",
        "p%25C3%25A4ss%252Fw%2522o%2527%2526%253Cr%253E%255Cd",
        "70c3a473732f77226f27263c723e5c64",
        "70C3A473732F77226F27263C723E5C64",
        "70 c3 a4 73 73 2f 77 22 6f 27 26 3c 72 3e 5c 64",
        "70:c3:a4:73:73:2f:77:22:6f:27:26:3c:72:3e:5c:64",
        "%70%C3%A4%73%73%2F%77%22%6F%27%26%3C%72%3E%5C%64",
    ],
)
def test_each_form_of_a_secret_is_among_its_echoes(form):
    assert form in echoes(["päss/w\"o'&<r>\\d"])


def test_echoes_come_longest_first_and_a_secret_is_found_as_it_was_before_it_was_encoded():
    forms = echoes(["a%2Fbcd", "xyzw"])
    assert [len(form) for form in forms] == sorted(map(len, forms), reverse=True)
    assert {"a/bcd", "xyzw", "a%252Fbcd"} <= set(forms)
    assert min(map(len, forms)) == 4


def test_base64_is_found_at_each_place_from_six_letters_on():
    assert "YWJjZG" in echoes(["abcde"])
    assert not any(form.startswith("YWJjZ") for form in echoes(["abcd"]))
    hidden = "s3cr3t?>s3cr3t"
    for before in ("", "x", "xy"):
        for encode in (b64encode, urlsafe_b64encode):
            coded = encode(f"{before}{hidden}".encode()).decode()
            assert REDACTED in blanker([hidden])(coded) and REDACTED in blanker([hidden])(quote(coded, safe=""))


@check_table(
    "key",
    [
        "AKIA" + "A1" * 8,
        "sk-" + "a" * 20,
        *(f"gh{kind}_" + "a" * 30 for kind in "pousr"),
        "hf_" + "a" * 30,
        *(f"xox{kind}-" + "1" * 10 for kind in "abpr"),
        "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 64 + "\nBBB=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\n" + "A" * 64 + "\\n-----END PRIVATE KEY-----",
    ],
)
def test_each_known_format_of_a_secret_is_blanked_and_nothing_else(key):
    assert redact_keys(f"x {key} y") == f"x {REDACTED} y"
    assert exposed(f"x {key} y") == key
    assert redact_keys(f"x {key[:5]} y") == f"x {key[:5]} y"
