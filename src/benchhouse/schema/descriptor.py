"""The TOML format in which Benchmark AI describes a benchmark."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from benchhouse.schema.kubernetes import LabelKey, LabelValue
from benchhouse.schema.model import Model
from benchhouse.schema.schedules import CRON_WORDS

MAX_LABELS = 10
SINGLE_RUN = "single_run"


def _whole(value: Any) -> Any:
    """Return a number for text such as `"4"`, which that format accepts."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _by_name(value: Any) -> Any:
    """Return a metric for a plain name, the form of older descriptors; its values are emitted."""
    return {"name": value} if isinstance(value, str) else value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1024)]
Port = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=65535)]


class Info(Model, strict=True):
    """Description, labels, and schedule of a benchmark."""

    description: str = Field("", description="For people.")
    task_name: str = Field("", description="Its name, in older descriptors; now a label.")
    scheduling: str = Field(SINGLE_RUN, description="single_run, a cron line, or one of " + ", ".join(CRON_WORDS) + ".")
    execution_engine: str = Field("default", description="default; others are services of a cloud.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=MAX_LABELS, description="Labels of its results; task_name names the benchmark."
    )


class Distributed(Model, strict=True):
    """A benchmark on several machines."""

    num_instances: Count = Field(2, description="How many machines.")
    processes_per_instance: Literal["gpus"] | Count = Field(1, description="Processes on each: a number, or gpus.")


class Hardware(Model, strict=True):
    """The machines on which a benchmark runs."""

    instance_type: str = Field(min_length=1, description="Type of machine, such as p3.8xlarge.")
    strategy: Literal["single_node", "horovod", "inference", "client_server"] = Field(
        description="single_node: one process; horovod: ranks; inference: a server and its client."
    )
    availability_zone: str = Field("", description="Zone of the cloud.")
    aws_zone_id: str = Field("", description="Zone of AWS.")
    distributed: Distributed | None = Field(None, description="Several machines.")


class DescriptorEnvironment(Model, strict=True):
    """The container and variables of a benchmark."""

    docker_image: str = Field(min_length=1, description="Container image.")
    privileged: bool = Field(False, description="Refused where true.")
    extended_shm: bool = Field(True, description="More than 64 MB of shared memory.")
    vars: dict[str, str] = Field(default_factory=dict, description="Environment variables.")


class DescriptorScript(Model, strict=True):
    """Files of the user in addition to the image."""

    script: str = Field(min_length=1, description="An archive (.tar), unpacked where $BAI_SCRIPTS_PATH says.")


class Ml(Model, strict=True):
    """The program that is run."""

    benchmark_code: str = Field("", description="The command, or a script that begins with #!.")
    args: str = Field("", description="What is appended to the command.")
    framework: str = Field("", description="Name of the framework.")
    framework_version: str = Field("", description="Its version.")
    script: DescriptorScript | None = Field(None, description="Files of the user.")


class DescriptorSource(Model, strict=True):
    """Data to fetch."""

    src: str = Field(min_length=1, description="http(s)://, s3:// or file:// address, or a path beside this file.")
    path: str = Field(min_length=1, description="Where the program finds it.")
    id: str = Field("", description="Its name.")
    md5: str = Field("", pattern=r"^([0-9a-fA-F]{32})?$", description="Of the file.")
    sha256: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$", description="Of the file; ours, not of that format.")


class DescriptorData(Model, strict=True):
    """The data that the program reads."""

    id: str = Field("", description="Name of the dataset.")
    sources: list[DescriptorSource] = Field(default_factory=list, description="Where it comes from.")


class DescriptorMetric(Model, strict=True):
    """A number that the program prints or emits."""

    name: str = Field(min_length=1, description="Name of the metric.")
    units: str = Field("1", description="Its unit.")
    pattern: str = Field("", description="Regular expression with a group around the number; none: it is emitted.")


class Output(Model, strict=True):
    """The metrics of a benchmark."""

    metrics: list[Annotated[DescriptorMetric, BeforeValidator(_by_name)]] = Field(
        default_factory=list, description="Numbers of the program."
    )


class DescriptorProbe(Model, strict=True):
    """How to check that the server is up."""

    path: str = Field("/", pattern="^/", description="Path that answers 200.")
    port: Port | None = Field(None, description="By default the first of `ports`.")
    scheme: Literal["http", "https", "HTTP", "HTTPS"] = Field("http", description="http or https.")
    initial_delay_seconds: int = Field(0, ge=0, description="Wait before the first look.")
    period_seconds: int = Field(10, ge=1, description="Wait between two looks.")
    timeout_seconds: int = Field(1, ge=1, description="Wait for an answer.")
    success_threshold: int = Field(1, ge=1, le=100, description="Successes in a row that are needed.")
    failure_threshold: int = Field(3, ge=1, description="Failures in a row after which it counts as down.")


class ServerEnvironment(DescriptorEnvironment, strict=True):
    """The container of the server, and how it is started."""

    start_command: str = Field("", description="The command.")
    start_command_args: str = Field("", description="What is appended to it.")
    ports: list[Port] = Field(min_length=1, description="Ports of the server.")
    readiness_probe: DescriptorProbe | str | None = Field(
        None, description="How to tell that it is up: an address, or parts."
    )
    liveliness_probe: DescriptorProbe | str | None = Field(None, description="How to tell that it still is.")
    liveness_probe: DescriptorProbe | str | None = Field(None, description="The same.")


class ServerHardware(Model, strict=True):
    """The machine on which the server runs."""

    instance_type: str = Field(min_length=1, description="Type of machine.")
    availability_zone: str = Field("", description="Zone of the cloud.")
    aws_zone_id: str = Field("", description="Zone of AWS.")


class DescriptorServer(Model, strict=True):
    """The server that an inference benchmark sends requests to."""

    hardware: ServerHardware
    env: ServerEnvironment
    models: list[DescriptorSource] = Field(default_factory=list, description="Models to fetch for it.")
    output: Output = Field(default_factory=Output, description="Numbers of the server.")


class Descriptor(Model, strict=True):
    """A descriptor file of Benchmark AI."""

    spec_version: str = Field(pattern=r"^0\.\d+(\.\d+)?$", description="Version of the format, such as 0.1.0.")
    info: Info
    hardware: Hardware
    env: DescriptorEnvironment
    ml: Ml = Field(default_factory=Ml)
    data: DescriptorData = Field(default_factory=DescriptorData)
    output: Output = Field(default_factory=Output)
    server: DescriptorServer | None = None
    custom_params: dict[str, Any] = Field(default_factory=dict, description="Whatever its maker likes.")

    @field_validator("info")
    @classmethod
    def _has_a_name(cls, info: Info) -> Info:
        if not info.labels.get("task_name") and not info.task_name:
            raise ValueError("it has no name: give the label task_name in [info.labels]")
        return info

    @model_validator(mode="after")
    def _check_server(self) -> "Descriptor":
        serves = self.hardware.strategy in ("inference", "client_server")
        if serves != (self.server is not None):
            strategy = self.hardware.strategy
            raise ValueError(f"strategy {strategy} {'needs a [server]' if serves else 'has no [server]'}")
        return self

    @property
    def name(self) -> str:
        """The name of the benchmark."""
        return self.info.labels.get("task_name") or self.info.task_name
