"""Lost: what is known of a load process that died."""

from pydantic import Field

from benchhouse.schema.model import Model


class Lost(Model):
    """A load process that died, and what it last said of itself. What it had counted is gone with it."""

    shard: int
    how: str
    at_s: float | None = Field(description="Of the load, when it last said something; null before the start.")
    answered: int = Field(description="Measured requests that it had good answers to.")
    failed: int = Field(description="Measured requests that had failed.")
    in_flight: int = Field(description="Requests whose answers it was waiting for, at most 20 ms before it died.")
    measured: bool = Field(description="Whether that was in the measured window.")

    def __str__(self) -> str:
        named = f"load process {self.shard} {self.how}"
        if self.at_s is None:
            return f"{named} before the start"
        return (
            f"{named} {self.at_s:.1f} s after the start: {self.answered} good answers are gone with it, "
            f"{self.in_flight} requests were in flight"
        )
