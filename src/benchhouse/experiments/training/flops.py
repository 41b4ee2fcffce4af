"""FLOPs per token of training: declared by a named formula, or counted by the trainer. Pure.

A multiplication and an addition are two FLOPs. Model FLOPs (MFU) hold one forward and one backward pass; hardware FLOPs
(HFU) also hold what is recomputed. docs/design/training-metrics.md explains how other projects count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from benchhouse.experiments.training import figures
from benchhouse.experiments.training.figures import WholeStep
from benchhouse.schema.model import Model

COUNTED, RECOMPUTED = "flops", "hardware_flops"
_FORWARD_SHARE = 1 / 3  # of forward and backward: backward has two products for each one of forward
_SHAPE = ("layers", "width", "tokens")


class ModelFlops(Model):
    """FLOPs of training on one token, without those that are recomputed."""

    formula: Literal["6N", "6N+12LHQT", "declared", "counted"] = Field(
        description="6N: products with weights. 6N+12LHQT: and attention over T tokens. declared: `per_token`. "
        "counted: member `flops` of the records."
    )
    parameters: float | None = Field(None, gt=0, description="N, parameters that a token meets (active experts only).")
    embedding: float = Field(0, ge=0, description="Of N, input embeddings: looked up, no product, so not counted.")
    layers: int | None = Field(None, ge=1, description="L.")
    width: int | None = Field(None, ge=1, description="H x Q: heads times the size of one, mostly the model's width.")
    tokens: int | None = Field(None, ge=1, description="T, tokens of a sequence.")
    causal: bool = Field(False, description="Count half of attention: a token sees only what came before it.")
    per_token: float | None = Field(None, gt=0, description="FLOPs a token, forward and backward.")
    recompute: Literal["none", "full"] | float | None = Field(
        None,
        description="What the backward pass computes again, for HFU: none, full (each forward once more), or FLOPs a "
        "token. By default unknown: no HFU unless records have `hardware_flops`.",
    )

    @model_validator(mode="after")
    def _complete(self) -> "ModelFlops":
        needed = {"declared": ("per_token",), "6N": ("parameters",), "6N+12LHQT": ("parameters", *_SHAPE)}
        if missing := [name for name in needed.get(self.formula, ()) if getattr(self, name) is None]:
            raise ValueError(f"formula {self.formula} needs {', '.join(missing)}")
        if self.embedding >= (self.parameters or float("inf")):
            raise ValueError("embedding is a part of parameters, and less")
        if isinstance(self.recompute, float) and self.recompute < 0:
            raise ValueError("recompute is none, full or a number of FLOPs a token, which is not negative")
        return self

    @property
    def a_token(self) -> float | None:
        """FLOPs per token without recomputation; None if they are counted."""
        if self.formula == "declared":
            return self.per_token
        if self.formula == "counted":
            return None
        weights = 6 * ((self.parameters or 0) - self.embedding)
        if self.formula == "6N":
            return weights
        attention = 12 * (self.layers or 0) * (self.width or 0) * (self.tokens or 0)
        return weights + attention / (2 if self.causal else 1)

    def recomputed(self, model: float, tokens: float | None) -> float | None:
        """Return the recomputed FLOPs per second, from those of the model and its tokens per second; None if
        unknown."""
        if self.recompute == "none":
            return 0.0
        if self.recompute == "full":
            return model * _FORWARD_SHARE
        return None if self.recompute is None or tokens is None else self.recompute * tokens


@dataclass(frozen=True)
class Achieved:
    """FLOPs per second of all ranks, over the measured steps and the pauses between them."""

    model: float | None
    hardware: float | None
    formula: str
    why: str = ""
    """Why there is no number."""


def achieved(steps: Sequence[WholeStep], asked: ModelFlops | None) -> Achieved:
    """Apply the requested formula; without one, use the counts of the records."""
    tokens = figures.rate(steps, "tokens")
    counted, hardware = figures.rate(steps, COUNTED), figures.rate(steps, RECOMPUTED)
    if asked is None or asked.formula == "counted":
        if counted is None and hardware is None:
            return Achieved(None, None, "counted", f"no step of all ranks has {COUNTED}: see count_flops")
        model = counted
    elif tokens is None:
        return Achieved(None, None, asked.formula, "the steps tell no tokens")
    else:
        model = (asked.a_token or 0.0) * tokens
    more = asked.recomputed(model, tokens) if asked and model is not None else None
    if model is not None and more is not None:
        hardware = model + more
    elif model is not None and counted and hardware is not None:
        hardware *= model / counted  # a formula differs a little from the count: put HFU on the scale of MFU
    return Achieved(model, hardware, asked.formula if asked else "counted")
