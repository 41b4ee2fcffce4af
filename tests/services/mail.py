"""A mail server for tests: it takes every mail over SMTP and stores it."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass(frozen=True)
class Mail:
    """One received mail."""

    recipients: list[str]
    content: bytes

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.content, policy=policy.default)


class _Session(socketserver.StreamRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        recipients: list[str] = []
        self._answer("220 test")
        while line := self.rfile.readline():
            command = line.strip().decode()
            match command[:4].upper():
                case "RCPT":
                    recipients.append(command.partition("<")[2].partition(">")[0])
                case "DATA":
                    self._answer("354 go on")
                    self.server.mails.append(Mail(recipients, self._content()))
                case "QUIT":
                    self._answer("221 bye")
                    return
            self._answer("250 OK")

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def _content(self) -> bytes:
        lines = iter(self.rfile.readline, b".\r\n")
        return b"".join(line.removeprefix(b".") if line.startswith(b"..") else line for line in lines)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[Mail] = []


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Mail]]]:
    """Yield the port of a mail server and the list that its mails are added to."""
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1], server.mails
        finally:
            server.shutdown()
            thread.join()
