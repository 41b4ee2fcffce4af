"""What the server can do, as one table: HTTP routes, the OpenAPI document and MCP tools are made from it."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from benchhouse.schema.resources import Budget
from benchhouse.schema.roles import Role as Scope

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

Method = Literal["GET", "POST"]


class VerbParams(BaseModel):
    """What a verb is asked with: fields by the names of the path, the query or the body."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class NoParams(VerbParams):
    """Of a verb that is asked as it is."""


Token = Annotated[str, Field(max_length=500)]
"""The name of something, as a person types it."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]
"""The same where a path would be taken too, which a stranger may not give."""


@dataclass(frozen=True)
class WriteContext:
    """On whose behalf something is written."""

    by: str
    request: str
    """Names what is written, so that it is found again and not written twice; a new run has it as its id."""
    budget: Budget | None = None
    """What a run may use that they start; None: what its scenario says."""


@dataclass(frozen=True)
class Text:
    """An answer that is a document by itself."""

    text: str
    media_type: str
    file: str
    """The name that it is saved under."""


@dataclass(frozen=True)
class Verb:
    """A question, or something that is done; `call` is the whole of it."""

    name: str
    method: Method
    path: str
    """Below /api; `{run}` is a field of `asks`."""
    asks: type[VerbParams]
    call: Callable[..., Any]
    scope: Scope
    rows: str | None
    """The field of the answer that is a table; empty: the answer itself is one; None: there is none."""
    texts: tuple[str, ...] = ()
    """Media types, where the answer is a text."""
    personal: bool = False
    """Whether it writes nothing, and is called with the name of who asks."""

    @cached_property
    def answers(self) -> Any:
        """The type of the answer, as pydantic describes it. The modules of all types are imported when one is asked
        for: that takes as long as the rest of the start."""
        types = importlib.import_module("benchhouse.serve.answer_types")
        return get_type_hints(self.call, localns={"answers": types})["return"]

    @property
    def writes(self) -> bool:
        """Whether it is called with an `WriteContext` too."""
        return self.method == "POST" and self.scope != "read"

    def answer(self, workspace: "Workspace", params: VerbParams, by: str) -> Any:
        """What it says, where it writes nothing; `by` is who asks."""
        return self.call(workspace, params, by) if self.personal else self.call(workspace, params)

    @property
    def forms(self) -> tuple[str, ...]:
        """Media types that the answer can be had in, the usual one first."""
        tables = () if self.rows is None else ("text/csv", "application/vnd.apache.arrow.stream")
        return self.texts or ("application/json", *tables)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.call) or "").partition("\n")[0]


VERBS: dict[str, Verb] = {}
"""By name; filled by the modules that declare them (`reading`)."""


def verb(
    method: Method, path: str, scope: Scope = "read", *, rows: str | None = None, texts: tuple[str, ...] = ()
) -> Callable[[Any], Any]:
    """Declare a function of a workspace, of what is asked and, where it takes `by`, of who asks; its name, its types
    and its first line are the verb's.

    An answer that is a list is a table, which can be had as CSV and Arrow too; `rows` names the field that is one.
    `texts` are the media types of one that is a document. A POST with another scope than read writes: it is a function
    of an `WriteContext` too.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        taken = inspect.signature(function).parameters
        asks = list(taken.values())[1].annotation
        table = "" if str(function.__annotations__["return"]).startswith("list[") else rows
        name = function.__name__
        VERBS[name] = Verb(name, method, path, asks, function, scope, table, texts, personal="by" in taken)
        return function

    return declare
