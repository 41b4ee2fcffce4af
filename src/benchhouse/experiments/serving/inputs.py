"""The target and the workload of `serving.load`, as a scenario states them."""

from typing import Any, Literal

from pydantic import Field, model_validator

from benchhouse.experiments.serving.embedded_server import Starting
from benchhouse.experiments.serving.lengths import Fixed
from benchhouse.experiments.serving.prompts import ConversationPrompts, PromptSpec, SyntheticPrompts
from benchhouse.load.shape import Shape
from benchhouse.schema.model import Model
from benchhouse.schema.service import split_endpoints


class ServingPrices(Model):
    """Prices of the service; costs are reported only with these."""

    per_hour: float | None = Field(None, ge=0, description="Of the machines that serve, in $ an hour.")
    per_million_input_tokens: float | None = Field(None, ge=0, description="$ by input token.")
    per_million_output_tokens: float | None = Field(None, ge=0, description="$ by output token.")


class ServingTarget(Model):
    """The server under test, and how it is deployed."""

    driver: str = Field("openai", description="Driver of the server's protocol.")
    url: str = Field(
        "", description="http://host:port; {port} is a free port for `start`. Several replicas: separated by commas."
    )
    model: str = Field("", description="Model to ask for; by default the only one that the server has.")
    api: Literal["chat", "completions"] | None = Field(None, description="By default chat; completions for a batch.")
    stream: bool = Field(True, description="Whether answers are streamed token by token.")
    api_key: str | None = Field(None, description="Bearer token; give a secret, not the token itself.")
    headers: dict[str, str] = Field(default_factory=dict, description="Further header lines.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Into every request: temperature, ignore_eos, ...")
    verify_tls: bool = Field(True, description="Whether the server's certificate is checked.")
    tokenizer: str | None = Field(None, description="tokenizer.json, to count tokens where the server does not.")
    start: Starting | None = Field(None, description="Embedded mode: start the server for the trial, and end it after.")
    framework: str = Field("", description="vllm, triton, sglang, ...: what serves.")
    deployment: str = Field("", description="How it is deployed: single, replicated, disaggregated, ...")
    prices: ServingPrices = Field(default_factory=ServingPrices, description="For figures of cost.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _start_fits_the_url(self) -> "ServingTarget":
        if len(split_endpoints(self.url)) > 1 and self.start:
            raise ValueError("start is for one server: give target.url one address, or declare a service with replicas")
        started_with = self.start is not None and any("{port}" in word for word in self.start.command)
        if "{port}" in self.url and not started_with:
            raise ValueError("{port} in target.url is the free port that target.start.command gets: it must say {port}")
        if started_with and "{port}" not in self.url:
            raise ValueError("target.start.command says {port}, so target.url must: http://127.0.0.1:{port}")
        return self


class ServingWorkload(Shape):
    """The load and its prompts."""

    prompts: PromptSpec = Field(default_factory=SyntheticPrompts, description="What is asked.")
    batch: int = Field(1, ge=1, le=10_000, description="Prompts in one request; more than one needs completions.")
    prompt_len: int | None = Field(None, ge=1, description="Short for prompts.prompt_tokens.")
    gen_tokens: int | None = Field(None, ge=1, description="Short for prompts.output_tokens.")

    @model_validator(mode="after")
    def _prompts_fit(self) -> "ServingWorkload":
        usual = type(self.prompts).model_fields  # a plan writes out defaults: these do not count as given twice
        for short, name in (("prompt_len", "prompt_tokens"), ("gen_tokens", "output_tokens")):
            if getattr(self, short) and (
                name not in usual or getattr(self.prompts, name) != usual[name].get_default(call_default_factory=True)
            ):
                raise ValueError(f"{short} is short for prompts.{name}: give one of them")
        if isinstance(self.prompts, ConversationPrompts) and self.shards > 1:
            raise ValueError("conversations need processes: 1")
        if isinstance(self.prompts, ConversationPrompts) and self.batch > 1:
            raise ValueError("conversations need batch: 1")
        return self

    @property
    def asked(self) -> PromptSpec:
        """The prompts, with the short forms filled in."""
        lengths = {"prompt_tokens": self.prompt_len, "output_tokens": self.gen_tokens}
        given = {name: Fixed(tokens=length) for name, length in lengths.items() if length}
        return self.prompts.model_copy(update=given) if given else self.prompts
