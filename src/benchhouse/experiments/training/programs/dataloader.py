"""One rank of `training.dataloader`: torch's DataLoader over samples of a known size, and a consumer that simulates an
accelerator. Its one argument is JSON; it prints a line of JSON for each batch and each epoch."""

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SPIN_S = 3e-4  # before its end, the simulated computation doesn't sleep: that would last too long

Sample = tuple[int, torch.Tensor]


class Store:
    """Reads or opens whole files of a folder, or of S3 with s3fs, whose connections each process makes itself."""

    def __init__(self, root: str) -> None:
        self.root, self._remote = root, None

    def _fs(self) -> Any:
        if self._remote is None:
            import fsspec

            self._remote = fsspec.filesystem("s3", skip_instance_cache=True)
        return self._remote

    def read(self, name: str) -> bytearray:
        path = f"{self.root}/{name}"
        if path.startswith("s3://"):
            return bytearray(self._fs().cat_file(path))
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs time that is measured
            content = bytearray(os.fstat(file.fileno()).st_size)
            if file.readinto(content) != len(content):
                raise OSError(f"{path}: less came than the file has")
        return content

    def open(self, name: str) -> Any:
        path = f"{self.root}/{name}"
        return self._fs().open(path) if path.startswith("s3://") else path


class Files:
    """One file per sample, in any order."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.store, self.sample_s, self.in_folder = Store(options["root"]), options["sample_s"], options["in_folder"]

    def __getitem__(self, index: int) -> Sample:
        time.sleep(self.sample_s)
        return as_sample(self.store.read(f"{index // self.in_folder:06d}/{index:08d}.bin"))


class InMemoryData:
    """No storage at all: the cost of the loader itself."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.size, self.sample_s = options["sample_size"], options["sample_s"]

    def __getitem__(self, index: int) -> Sample:
        time.sleep(self.sample_s)
        return as_sample(bytearray(index.to_bytes(8, "little") + bytes(self.size - 8)))


class Parquet(IterableDataset):  # type: ignore[misc]
    """Row groups, spread over ranks and their workers; the rows of a group come in order."""

    def __init__(self, options: dict[str, Any], groups: list[int]) -> None:
        self.store, self.sample_s, self.in_file = Store(options["root"]), options["sample_s"], options["groups_in_file"]
        self.groups = groups

    def __iter__(self) -> Iterator[Sample]:
        from pyarrow.parquet import ParquetFile

        worker = get_worker_info()
        for group in self.groups[worker.id :: worker.num_workers] if worker else self.groups:
            with ParquetFile(self.store.open(f"{group // self.in_file:06d}.parquet")) as file:
                rows = file.read_row_group(group % self.in_file, columns=["content"])["content"]
            for row in rows:
                time.sleep(self.sample_s)
                yield as_sample(bytearray(row.as_buffer()))


def as_sample(content: bytearray) -> Sample:
    """Return a sample with its number, which is in its first bytes: it shows whether the expected samples arrived."""
    return int.from_bytes(content[:8], "little"), torch.frombuffer(content, dtype=torch.uint8)


def loader_of(options: dict[str, Any], epoch: int, rank: int, world: int) -> DataLoader:
    """Return the loader of this rank's share in this epoch: samples, or row groups of Parquet."""
    count = options["samples"]
    if options["kind"] == "parquet":
        count = -(-count // options["row_group"])
    order = list(range(count))
    if options["shuffle"]:
        random.Random(options["seed"] * 1009 + epoch).shuffle(order)
    own, workers = order[rank::world], options["workers"]
    common = {
        "batch_size": options["batch"],
        "num_workers": workers,
        "prefetch_factor": options["prefetch"] if workers else None,
    }
    if options["kind"] == "parquet":
        return DataLoader(Parquet(options, own), **common)
    dataset: Any = {"files": Files, "memory": InMemoryData}[options["kind"]](options)
    return DataLoader(dataset, sampler=own, **common)


def run_epoch(options: dict[str, Any], epoch: int, rank: int, world: int) -> None:
    loader, compute_s = loader_of(options, epoch, rank, world), options["compute_s"]
    fetched, samples, numbers, size = fetched_bytes(), 0, 0, 0
    times = []
    meet(world)
    began = done = time.monotonic()
    batches = iter(loader)
    while True:
        asked = done
        batch = next(batches, None)
        got = time.monotonic()
        if batch is None:
            break
        compute(got + compute_s)
        done = time.monotonic()
        times.append((asked, got, done, len(batch[0])))
        samples, numbers, size = samples + len(batch[0]), numbers + int(batch[0].sum()), size + batch[1].nbytes
    del batches  # ends the workers: the bytes that they fetched then count for this process
    for number, (asked, got, done, count) in enumerate(times):
        say({"epoch": epoch, "batch": number, "asked": asked, "got": got, "done": done, "samples": count})
    fetched = None if fetched is None else (fetched_bytes() or 0) - fetched
    say({"epoch": epoch, "began": began, "samples": samples, "numbers": numbers, "bytes": size, "fetched": fetched})


def compute(until_s: float) -> None:
    while (left := until_s - time.monotonic()) > 0:
        if left > SPIN_S:
            time.sleep(left - SPIN_S)


def meet(world: int) -> None:
    if world > 1:
        distributed.barrier()


def drop_cache(root: str) -> None:
    """Drop the cached pages of all files; pages that are not on the device yet are written first."""
    for path in Path(root).rglob("*.*"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def fetched_bytes() -> "int | None":
    """Return the bytes that the kernel fetched for this process and its ended children; None if unknown."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])
    except (OSError, KeyError):
        return None


def say(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")


def main() -> None:
    options = json.loads(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world > 1:
        distributed.init_process_group("gloo")
    for epoch in range(options["epochs"]):
        if options["drop"] and os.environ["LOCAL_RANK"] == "0":
            drop_cache(options["root"])
        meet(world)
        run_epoch(options, epoch, rank, world)
    say({"torch": torch.__version__, "python": sys.version.split()[0]})
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
