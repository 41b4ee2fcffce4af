"""Estimate, not bill, the cost of infrastructure from a table of prices with a date and a region."""

from dataclasses import dataclass

from benchhouse.schema.infra import InfraRequest, PriceTable
from benchhouse.sites.infra.providers import DISK_GB

HOURS_A_MONTH = 730


@dataclass(frozen=True)
class CostLine:
    """One item with a cost."""

    what: str
    least: int
    """The smallest number of them."""
    most: int
    hourly: float | None
    """The price of one; None if the table has none."""


@dataclass(frozen=True)
class Cost:
    """An estimate: with the fewest nodes, which is the cost of an idle cluster, and with the most."""

    lines: list[CostLine]
    least_hourly: float
    most_hourly: float
    least_monthly: float
    most_monthly: float
    currency: str
    as_of: str
    """When the prices were valid; empty if nothing is charged."""
    region: str
    """The region of the prices."""
    notes: list[str]
    """Costs that the sums do not include."""


def estimate(request: InfraRequest, prices: PriceTable) -> Cost:
    """Estimate the cost on AWS; the other providers use this machine, which costs nothing."""
    if request.provider != "aws":
        return Cost([], 0.0, 0.0, 0.0, 0.0, prices.currency, "", "", ["it runs on this machine: nothing is charged"])
    nodes, gpu_nodes, hourly = request.nodes, request.gpu_nodes, prices.hourly
    disk = prices.monthly_gb.get("disk")
    lines = [
        CostLine("EKS control plane", 1, 1, hourly.get("control-plane")),
        CostLine("NAT gateway", 1, 1, hourly.get("nat-gateway")),
        CostLine("public address", 1, 1, hourly.get("public-address")),
        CostLine(f"node {request.instance_type}", nodes.min, nodes.max, hourly.get(request.instance_type)),
        CostLine(
            f"node {request.gpu_instance_type}", gpu_nodes.min, gpu_nodes.max, hourly.get(request.gpu_instance_type)
        ),
        CostLine(
            f"disk of {DISK_GB} GB",
            nodes.min + gpu_nodes.min,
            nodes.max + gpu_nodes.max,
            None if disk is None else disk * DISK_GB / HOURS_A_MONTH,
        ),
    ]
    lines = [line for line in lines if line.most]
    least = sum(line.least * (line.hourly or 0.0) for line in lines)
    most = sum(line.most * (line.hourly or 0.0) for line in lines)
    return Cost(
        lines, least, most, least * HOURS_A_MONTH, most * HOURS_A_MONTH, prices.currency, prices.as_of, prices.region,
        _left_out(request, prices, lines),
    )  # fmt: skip


def _left_out(request: InfraRequest, prices: PriceTable, lines: list[CostLine]) -> list[str]:
    evidence = prices.monthly_gb.get("evidence")
    price = "" if evidence is None else f" ({evidence:g} {prices.currency} a GB and month)"
    notes = [f"not in the sums: evidence on S3{price}, data transfer, requests, taxes"]
    if unknown := [line.what for line in lines if line.hourly is None]:
        notes.append(f"no price known of: {', '.join(unknown)}; the sums are without. Add it to prices.yaml")
    if prices.region != request.region:
        notes.append(f"prices are of {prices.region}, the cluster is in {request.region}: expect other ones")
    return notes
