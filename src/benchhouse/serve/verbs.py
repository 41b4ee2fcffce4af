"""The table of the server's verbs, which generates the HTTP routes, the OpenAPI document, and the MCP tools."""

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
    """The parameters of a verb: fields with the names used in the path, query, or body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class NoParams(VerbParams):
    """The parameters of a verb that takes none."""


Token = Annotated[str, Field(max_length=500)]
"""A name as a person types it."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]
"""A name that cannot be a path, for parameters that remote callers set."""


@dataclass(frozen=True)
class WriteContext:
    """The caller and the limits of a write."""

    by: str
    request: str
    """The name of the written object, so that a repeated request does not write it twice; the id of a new run."""
    budget: Budget | None = None
    """What a run that the caller starts may use; None for the budget of its scenario."""


@dataclass(frozen=True)
class Text:
    """An answer that is one document."""

    text: str
    media_type: str
    file: str
    """The file name under which it is saved."""


@dataclass(frozen=True)
class Verb:
    """A read or write that the server offers; `call` implements it."""

    name: str
    method: Method
    path: str
    """The path below /api; `{run}` is a field of `asks`."""
    asks: type[VerbParams]
    call: Callable[..., Any]
    scope: Scope
    rows: str | None
    """The field of the answer that is a table; empty if the answer itself is a table; None if there is no table."""
    texts: tuple[str, ...] = ()
    """The media types of an answer that is a text; empty otherwise."""
    personal: bool = False
    """Whether the verb only reads and takes the name of the caller."""

    @cached_property
    def answers(self) -> Any:
        """The type of the answer, as pydantic describes it. The modules of all types are imported at first use, because
        the import takes as long as the rest of the start."""
        types = importlib.import_module("benchhouse.serve.answer_types")
        return get_type_hints(self.call, localns={"answer_types": types})["return"]

    @property
    def writes(self) -> bool:
        """Whether the verb takes a `WriteContext` and writes."""
        return self.method == "POST" and self.scope != "read"

    def answer(self, workspace: "Workspace", params: VerbParams, by: str) -> Any:
        """Return the answer of a verb that only reads; `by` is the name of the caller."""
        return self.call(workspace, params, by) if self.personal else self.call(workspace, params)

    @property
    def forms(self) -> tuple[str, ...]:
        """The media types of the answer, the default first."""
        tables = () if self.rows is None else ("text/csv", "application/vnd.apache.arrow.stream")
        return self.texts or ("application/json", *tables)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.call) or "").partition("\n")[0]


VERBS: dict[str, Verb] = {}
"""All verbs by name, filled by the modules that declare them (`reading_verbs` and others)."""


def verb(
    method: Method, path: str, scope: Scope = "read", *, rows: str | None = None, texts: tuple[str, ...] = ()
) -> Callable[[Any], Any]:
    """Declare a verb. The function takes a workspace, parameters, and optionally `by`, the name of the caller; the verb
    gets the function's name, types, and first docstring line.

    An answer that is a list is a table, also available as CSV and Arrow; `rows` names the field that is one. `texts`
    lists the media types of an answer that is a document. A POST with a scope other than read writes, and its function
    also takes a `WriteContext`.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        taken = inspect.signature(function).parameters
        asks = list(taken.values())[1].annotation
        table = "" if str(function.__annotations__["return"]).startswith("list[") else rows
        name = function.__name__
        VERBS[name] = Verb(name, method, path, asks, function, scope, table, texts, personal="by" in taken)
        return function

    return declare
