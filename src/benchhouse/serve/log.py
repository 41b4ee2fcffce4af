"""The log of a server, on stderr."""

import logging
import os

from benchhouse.schema.secrets import blanker, holds_secret


class _Blanked(logging.Formatter):
    """Formats log lines and exceptions without the secrets of the environment."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        values = [value for name, value in os.environ.items() if value and holds_secret(name, os.environ)]
        self._blank = blanker(values)

    def format(self, record: logging.LogRecord) -> str:
        return self._blank(super().format(record))


def log_to_stderr() -> None:
    """Log warnings and errors of the server and of its protocol libraries to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Blanked())
    for name in ("uvicorn", "mcp", "benchhouse.serve"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)
