"""System shared memory between this machine and a Triton server on it: tensors then travel in no request."""

import mmap
import os
from pathlib import Path
from secrets import token_hex

from benchhouse.drivers.triton_model import ServerHttp, error_text
from benchhouse.schema.errors import BenchError

_FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux keeps named shared memory
_ALIGNMENT = 64


class SharedRegion:
    """A registered region of at least `size` bytes. `close` takes it back from the server.

    Its file is gone as soon as the server has mapped it, so that a killed process leaves none behind; the server drops
    its mapping on `close` or at its own end.
    """

    def __init__(self, server: ServerHttp, size: int) -> None:
        self.name = f"benchhouse_{os.getpid()}_{token_hex(4)}"
        self._server, self._owner = server, os.getpid()
        path = _FOLDER / self.name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise BenchError(f"shared memory can't be made here: {error}", hint="shared_memory: false") from error
        try:
            os.ftruncate(descriptor, max(size, 1))
            self.memory = mmap.mmap(descriptor, max(size, 1))
            body = {"key": f"/{self.name}", "offset": 0, "byte_size": max(size, 1)}
            status, answer = server.ask(f"/v2/systemsharedmemory/region/{self.name}/register", body)
        finally:
            os.close(descriptor)
            path.unlink()
        if status != 200:
            raise BenchError(
                f"the server at {server.url} refuses shared memory: {error_text(answer)}",
                hint="it must run on this machine with the same /dev/shm, and newer ones need --allow-client-shm=true",
            )

    def parameters(self, offset: int, size: int) -> dict[str, str | int]:
        """What a request says of a tensor that lies here."""
        return {"shared_memory_region": self.name, "shared_memory_offset": offset, "shared_memory_byte_size": size}

    def close(self) -> None:
        if os.getpid() == self._owner and self.name:  # a forked load process has the same object
            self._server.ask(f"/v2/systemsharedmemory/region/{self.name}/unregister", b"")
            self.name = ""
            self.memory.close()


def aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
