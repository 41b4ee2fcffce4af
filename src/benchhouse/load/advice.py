"""What to look at when a server could not be reached or did not let us in, in one clause."""

_REACH = "is the server up, and is its address in target right?"
_NEXT = {
    "refused": _REACH,
    "timeout": _REACH,
    "reset": _REACH,
    "dns": "is the host in target right?",
    "login": "are user and password right? A password is given by the name of its variable, as $NAME",
    "no_database": "target.endpoint ends with the name of one that exists",
    "sqlstate_42501": "the user needs CREATE on the database",
    "too_many_connections": "ask for fewer in flight, or let the server take more",
}


def advised(kind: str, words: str) -> str:
    """The words of a failure to connect, and what to look at next where its kind tells."""
    return f"{words} ({_NEXT[kind]})" if kind in _NEXT else words
