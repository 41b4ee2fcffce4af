"""Request and trace ids of a load over HTTP: sent as headers, derived from the number of the request.

An id is a prefix of the load and the number of the request, so none is stored while the load runs.
"""


class Traces:
    """Puts the ids into requests: `x-request-id`, and `traceparent` as in W3C Trace Context, sampled."""

    def __init__(self, beginning: str) -> None:
        """`beginning`: 16 hexadecimal digits that are unique to this load."""
        self.beginning = beginning
        self._form = f"\r\nx-request-id: {beginning}-%d\r\ntraceparent: 00-{beginning}%016x-%016x-01\r\n".encode()

    def put(self, request: bytes, index: int) -> bytes:
        """Return the request with its ids after its first line; one with ids of the user is unchanged."""
        line_end = request.find(b"\r\n")
        head = request[line_end : request.find(b"\r\n\r\n")].lower()
        if line_end < 0 or b"\r\ntraceparent:" in head or b"\r\nx-request-id:" in head:
            return request
        return b"".join((request[:line_end], self._form % (index, index, index + 1), request[line_end + 2 :]))


def request_id(beginning: str, index: int) -> str:
    return f"{beginning}-{index}"


def trace_id(beginning: str, index: int) -> str:
    return f"{beginning}{index:016x}"
