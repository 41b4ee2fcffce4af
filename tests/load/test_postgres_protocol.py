"""Places in SQL, and what errors of a server are called."""

from tables import check_rows

from benchhouse.load.protocols.postgres import Login, Statement, failure, not_connected


def test_places_are_found_where_sql_has_values():
    rows = [
        ("SELECT 1", "SELECT 1", ()),
        ("SELECT :a + :b - :a", "SELECT $1 + $2 - $1", ("a", "b")),
        ("SELECT :a::integer", "SELECT $1::integer", ("a",)),
        ("SELECT ':a', :b", "SELECT ':a', $1", ("b",)),
        ("SELECT 'it''s :a', \":a\", :b", "SELECT 'it''s :a', \":a\", $1", ("b",)),
        ("SELECT $$ :a $$, $x$ :a $$ $x$, :b", "SELECT $$ :a $$, $x$ :a $$ $x$, $1", ("b",)),
        ("SELECT :b -- :a\n, :c", "SELECT $1 -- :a\n, $2", ("b", "c")),
        ("SELECT /* :a */ :b", "SELECT /* :a */ $1", ("b",)),
        ("SELECT x[1:2]", "SELECT x[1:2]", ()),
    ]

    def check(text, numbered, names):
        statement = Statement("s", text)
        assert (statement.numbered, statement.names) == (numbered, names)

    check_rows(check, rows)


def test_errors_are_named_by_sqlstate():
    rows = [
        ("40P01", "deadlock"),
        ("40001", "serialization"),
        ("57014", "timeout"),
        ("23505", "sqlstate_23505"),
        (None, "reset"),
    ]

    def check(code, kind):
        assert failure(code, "words\nmore words").kind == kind
        assert failure(code, "words\nmore words").detail == "words"

    check_rows(check, rows)


def test_a_connection_that_fails_is_named_by_its_words():
    rows = [
        ('could not translate host name "x" to address', "dns"),
        ('FATAL:  password authentication failed for user "me"', "login"),
        ('FATAL:  role "me" does not exist', "login"),
        ('FATAL:  database "x" does not exist', "no_database"),
        ("FATAL:  the database system is starting up", "starting"),
        ("FATAL:  the database system is in recovery mode", "starting"),
        ("FATAL:  sorry, too many clients already", "too_many_connections"),
        ("Connection refused", "refused"),
        ("timeout expired", "timeout"),
        ("server does not support SSL, but SSL was required", "tls"),
    ]

    def check(words, kind):
        assert not_connected(f'connection to server at "h", port 5432 failed: {words}').kind == kind

    check_rows(check, rows)


def test_settings_are_escaped_and_a_password_is_never_shown():
    login = Login("postgresql://h/db", "geheim", {"search_path": "a b,c\\d"})
    assert login.options == "-c search_path=a\\ b,c\\\\d"
    assert "geheim" not in repr(login)
