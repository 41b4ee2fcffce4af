"""Topology: the parts of a node and their connections, as a worker read them.

Values that cannot be read are null, and `unknown` has the reason.
"""

from pydantic import Field

from benchhouse.schema.model import Model, empty_list


class Cpu(Model):
    """The processors of a node."""

    model: str | None = Field(None, description="Model name.")
    sockets: int | None = Field(None, description="Processors.")
    cores: int | None = Field(None, description="Cores of all of them.")
    threads: int | None = Field(None, description="Hardware threads that are online.")
    usable: int | None = Field(None, description="Hardware threads that the worker may use.")
    quota: float | None = Field(None, description="Processors that the cgroup allows; null: no limit.")
    governor: str | None = Field(None, description="Who sets the clocks.")


class NumaNode(Model):
    """A NUMA node."""

    node: int
    cpus: str = Field(description="Its hardware threads, such as 0-15,32-47.")
    memory_bytes: int | None = Field(None, description="Its memory.")
    distances: list[int] = Field(default_factory=empty_list, description="To each node, itself included.")


class GpuTopology(Model):
    """A GPU, as NVML reports it. An idle GPU lowers the generation of its link; comparisons use the highest possible
    one.
    """

    uuid: str | None = Field(None, description="Identity of the device.")
    name: str | None = Field(None, description="Model.")
    memory_bytes: int | None = Field(None, description="Its memory.")
    bus: str | None = Field(None, description="Address on the PCI bus.")
    numa: int | None = Field(None, description="NUMA node that it is attached to.")
    pcie_width: int | None = Field(None, description="Lanes of its link now.")
    pcie_width_most: int | None = Field(None, description="Lanes that GPU and slot can have.")
    pcie_generation: int | None = Field(None, description="Generation of its link now.")
    pcie_generation_most: int | None = Field(None, description="Generation that GPU and slot can have.")
    nvlinks: int | None = Field(None, description="Active NVLinks; null: NVML shows none.")
    nvlink_peers: list[str] = Field(default_factory=empty_list, description="Peers: GPU addresses, or `switch`.")
    paths: dict[str, str] = Field(
        default_factory=dict,
        description="To each other GPU by its address, what PCIe leads through, as `nvidia-smi topo -m` says: PIX (one "
        "switch), PXB (several), PHB (the host bridge), NODE (bridges of one NUMA node), SYS (between NUMA nodes).",
    )


class Nic(Model):
    """A network device, or an InfiniBand adapter."""

    name: str
    driver: str | None = Field(None, description="Kernel driver; null for a virtual device.")
    speed_mbps: int | None = Field(None, description="Mbit/s of the link; null where the device does not say.")
    numa: int | None = Field(None, description="NUMA node that it is attached to.")


class Topology(Model):
    """The hardware and kernel of one node."""

    machine: str = Field(description="Architecture.")
    kernel: str = Field(description="Release of the kernel.")
    cpu: Cpu
    numa: list[NumaNode] = Field(default_factory=empty_list)
    memory_bytes: int | None = Field(None, description="Memory of the machine.")
    memory_limit_bytes: int | None = Field(None, description="Memory that the cgroup allows; null: no limit.")
    gpus: list[GpuTopology] | None = Field(None, description="Null where nothing can tell whether there are any.")
    gpu_driver: str | None = Field(None, description="Version of the GPU driver.")
    cuda: str | None = Field(None, description="Newest CUDA that the driver knows, else what the environment says.")
    nics: list[Nic] = Field(default_factory=empty_list)
    filesystem: str | None = Field(None, description="Kind of file system that the evidence is written to.")
    unknown: dict[str, str] = Field(default_factory=dict, description="What could not be read, and why.")


class Cluster(Model, strict=True):
    """Location and operation of a site, which cannot be read on a node; part of a site profile."""

    name: str | None = Field(None, min_length=1, description="Name of the cluster.")
    region: str | None = Field(None, min_length=1, description="Region.")
    zone: str | None = Field(None, min_length=1, description="Availability zone.")
    provider: str | None = Field(None, min_length=1, description="Who runs it: a cloud, a centre.")
    scheduler: str | None = Field(None, min_length=1, description="Scheduler, where the executor's name is not it.")
    node_pool: str | None = Field(None, min_length=1, description="Pool of nodes, where jobs name no partition.")
    resource_flavor: str | None = Field(None, min_length=1, description="Kind of resources, as the site calls it.")
    tenant_mode: str | None = Field(None, pattern="^(shared|exclusive)$", description="shared or exclusive.")
