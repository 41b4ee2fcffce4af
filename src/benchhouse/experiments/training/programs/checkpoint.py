"""One rank of `training.checkpoint`: save a sharded state with torch.distributed.checkpoint, load it into an empty one,
and compare. Its one argument is JSON; it prints a line of JSON for each save and load."""

import datetime
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.distributed import checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, zeros

BLOCK = 1 << 20
WAIT_S = 3600.0  # for other ranks: the experiment has its own limit

Result = TypeVar("Result")


class Checkpoints:
    """The place of checkpoints: folders below a folder, or prefixes below an s3:// address."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.root, self.fsync = options["root"], options["fsync"]
        self.remote = self.root.startswith("s3://")
        if self.remote:
            import s3fs  # noqa: F401 - torch would not say what is missing

    def writer(self, where: str) -> dict[str, Any]:
        """Return the arguments of a save. torch chooses the writer for S3 itself, with its default settings."""
        if self.remote:
            return {"checkpoint_id": where}
        return {"storage_writer": dcp.FileSystemWriter(where, sync_files=self.fsync)}

    def size(self, where: str) -> int:
        if self.remote:
            import fsspec

            return int(fsspec.filesystem("s3", use_listings_cache=False).du(where))
        return sum(path.stat().st_size for path in Path(where).rglob("*"))

    def probe(self, size: int) -> None:
        """Write the size of a rank's share without torch in between. Raise OSError if that fails."""
        if not self.remote:
            with tempfile.TemporaryFile(dir=self.root, buffering=0) as file:
                for begin in range(0, size, BLOCK):
                    file.write(bytes(min(BLOCK, size - begin)))
                os.fsync(file.fileno())

    def drop_cache(self, where: str) -> None:
        """Drop the cached pages of its files; pages that are not on the device yet are written first."""
        for path in Path(where).rglob("*"):
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def empty_state(options: dict[str, Any], mesh: DeviceMesh) -> dict[str, Any]:
    """Return tensors of float32, each sharded over all ranks as FSDP2 does."""
    names = [f"parameter.{number:04d}" for number in range(options["tensors"])]
    return {name: zeros(options["elements"], device_mesh=mesh, placements=[Shard(0)]) for name in names}


def state_of(where: str, mesh: DeviceMesh) -> tuple[dict[str, Any], int]:
    """Return an empty state that fits an existing checkpoint, and the bytes of its tensors."""
    state: dict[str, Any] = {}
    total = 0
    for name, item in dcp.FileSystemReader(where).read_metadata().state_dict_metadata.items():
        if isinstance(item, dcp.TensorStorageMetadata):
            dtype, shape = item.properties.dtype, item.size
            placement = Shard(0) if len(shape) else Replicate()
            state[name] = zeros(*shape, dtype=dtype, device_mesh=mesh, placements=[placement])
            total += shape.numel() * dtype.itemsize
        else:
            state[name] = None
    return state, total


def fill(state: dict[str, Any], seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    for tensor in state.values():
        own = tensor.to_local()
        own.copy_(torch.rand(own.shape, generator=chance))


def train(state: dict[str, Any]) -> None:
    """Change every number, as the next step of a training does."""
    for tensor in state.values():
        tensor.to_local().add_(1.0)


def digest(state: dict[str, Any]) -> str:
    """Return the digest of this rank's share."""
    total = hashlib.sha256()
    for name in sorted(state):
        total.update(state[name].to_local().cpu().numpy())
    return total.hexdigest()


def save(state: dict[str, Any], where: str, places: Checkpoints, mode: str) -> dict[str, Any]:
    """Save the state while training continues. Return when training could continue, and when all was written."""
    distributed.barrier()
    expected = digest(state)
    distributed.barrier()
    began = time.monotonic()
    if mode == "sync":
        dcp.save(state, **places.writer(where))
        released = ended = time.monotonic()
        train(state)
    else:
        future = dcp.async_save(state, **places.writer(where))
        released = time.monotonic()
        train(state)
        future.result()
        ended = time.monotonic()
    return {"began": began, "released": released, "ended": ended, "digest": expected}


def load(state: dict[str, Any], where: str, places: Checkpoints, drop: bool) -> dict[str, Any]:
    if drop and os.environ["LOCAL_RANK"] == "0":
        places.drop_cache(where)
    distributed.barrier()
    fetched, began = fetched_bytes(), time.monotonic()
    dcp.load(state, checkpoint_id=where)
    ended = time.monotonic()
    fetched = None if fetched is None else (fetched_bytes() or 0) - fetched
    return {"began": began, "ended": ended, "fetched": fetched}


def fetched_bytes() -> "int | None":
    """Return the bytes that the kernel fetched from devices for this process; None if unknown."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])
    except (OSError, KeyError):
        return None


def attempt(what: str, call: Callable[[], Result], probe: Callable[[], object] = int) -> Result:
    """Return the result of `call`, or end this rank with the cause of its failure. torch reports of a failed write only
    that some position is not the expected one: if `probe` fails too, its error is the cause."""
    try:
        return call()
    except (Exception, dcp.CheckpointException) as error:  # noqa: BLE001 - whatever a storage raises
        causes = [cause for cause, _ in error.failures.values()] if isinstance(error, dcp.CheckpointException) else []
        cause: BaseException = (causes or [error])[0]
        try:
            probe()
        except OSError as known:
            cause = known
        text = " ".join(str(cause).split()) or type(cause).__name__
        sys.exit(f"the checkpoint can't be {what}: {text}")


def say(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def save_and_load(number: int, state: dict[str, Any], options: dict[str, Any], mesh: DeviceMesh) -> None:
    """Save and load once, then remove the checkpoint. On S3 it is removed later, with everything of the trial."""
    rank, places = distributed.get_rank(), Checkpoints(options)
    where, share = f"{places.root}/{number}", sum(tensor.to_local().nbytes for tensor in state.values())
    record = attempt("saved", lambda: save(state, where, places, options["mode"]), lambda: places.probe(share))
    if rank == 0:
        record["stored"] = places.size(where)
    say({"save": number, **record})
    loaded = empty_state(options, mesh)
    record = attempt("loaded", lambda: load(loaded, where, places, options["drop"] and not places.remote))
    say({"load": number, **record, "digest": digest(loaded)})
    distributed.barrier()
    if rank == 0 and not places.remote:
        shutil.rmtree(where)


def main() -> None:
    options = json.loads(sys.argv[1])
    cuda = options["device"] == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    wait = datetime.timedelta(seconds=WAIT_S)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=wait)
    mesh = init_device_mesh(options["device"], (distributed.get_world_size(),))
    if options["existing"]:
        state, size = attempt("loaded", lambda: state_of(options["existing"], mesh))
        places = Checkpoints(options)
        for number in range(options["saves"]):
            record = attempt("loaded", lambda: load(state, options["existing"], places, options["drop"]))
            say({"load": number, **record, "bytes": size})
    else:
        state = empty_state(options, mesh)
        fill(state, options["seed"] * 4099 + distributed.get_rank())
        for number in range(options["saves"]):
            save_and_load(number, state, options, mesh)
    say({"torch": torch.__version__, "python": sys.version.split()[0]})
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
