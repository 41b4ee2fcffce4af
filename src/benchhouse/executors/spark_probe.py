"""Is there a Spark master? Asked in a few bytes: Spark itself waits a minute before it gives up."""

import socket
import struct
from collections.abc import Mapping

_ANSWER_S = 8.0
_ASKED, _REFUSED = 0, 2  # types of messages of Spark's transport: a request of a chunk, and its refusal
_REQUEST = struct.pack(">qbqi", 8 + 1 + 8 + 4, _ASKED, 0, 0)
"""For a chunk of a stream that there is not: whoever speaks the protocol refuses it in the protocol."""


def unanswered(host: str, port: int, conf: Mapping[str, str], limit_s: float = _ANSWER_S) -> str:
    """Why no Spark is there; nothing where it is. One that wants a secret first is believed to be there."""
    try:
        with socket.create_connection((host, port), timeout=limit_s) as connection:
            if conf.get("spark.authenticate") == "true" or conf.get("spark.ssl.rpc.enabled") == "true":
                return ""
            connection.settimeout(limit_s)
            connection.sendall(_REQUEST)
            answer = connection.recv(9)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if answer[8:9] == bytes([_REFUSED]) else "something else than Spark is there"
