"""Inputs of an experiment as JSON Schema, and models made from it, for code that this process cannot import.

Rules that a schema cannot express, such as a validator of two fields, are checked where the experiment runs.
"""

import datetime
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Literal, Union

from pydantic import (
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    DirectoryPath,
    Field,
    FilePath,
    SecretStr,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.quantities import Bytes, Seconds, Share

Schema = Mapping[str, Any]

_FORMATS: dict[str, Any] = {
    "path": Path, "file-path": FilePath, "directory-path": DirectoryPath, "input-path": InputPath,
    "password": SecretStr, "binary": bytes, "uri": AnyUrl, "uuid": uuid.UUID, "date-time": datetime.datetime,
    "date": datetime.date, "time": datetime.time, "duration": datetime.timedelta,
}  # fmt: skip
_QUANTITIES: dict[str, Any] = {"quantity-s": Seconds, "quantity-bytes": Bytes, "quantity-share": Share}
_MUST_EXIST = ("file-path", "directory-path")  # the existence of a default is not checked, as in the model itself
_BOUNDS = {
    "minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
    "minLength": "min_length", "maxLength": "max_length", "minItems": "min_length", "maxItems": "max_length",
    "minProperties": "min_length", "maxProperties": "max_length", "pattern": "pattern",
}  # fmt: skip


class _WithDefaults(GenerateJsonSchema):
    """A generator that keeps defaults made by factories, unlike pydantic's: an instance's identity has all defaults."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if "default_factory" in schema and "default" not in described and not schema.get("default_factory_takes_data"):
            made = schema["default_factory"]()  # type: ignore[call-arg]
            described = {**described, "default": self.encode_default(made)}
        return described


def schema_of(model: type[BaseModel] | None) -> dict[str, Any] | None:
    """Return the schema of a target or workload, by the names that a scenario uses; None without a model."""
    return model.model_json_schema(by_alias=True, schema_generator=_WithDefaults) if model else None


def model_of(schema: Schema | None, name: str) -> type[BaseModel] | None:
    """Return a model that accepts and returns the same values as the described one; None without a schema."""
    if schema is None:
        return None
    maker = _Maker(schema.get("$defs", {}))
    made = maker.model(schema, name)
    maker.finish(made)
    return made


def _by_kind(schema: Schema) -> tuple[Any, BeforeValidator]:
    """Return the annotations of a union in which a mapping without its kind gets the kind of the default, if any."""
    kind, default = schema["discriminator"]["propertyName"], schema.get("default")

    def fill(value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(default, Mapping) and kind in default:
            return {kind: default[kind], **value}
        return value

    return Field(discriminator=kind), BeforeValidator(fill)


class _Maker:
    """Makes the models of one schema, each definition once."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._made: dict[str, Any] = {}

    def model(self, schema: Schema, name: str) -> type[BaseModel]:
        if "$ref" in schema:  # a recursive model is among the definitions
            made: type[BaseModel] = self._referred(schema["$ref"])
            return made
        required, fields = schema.get("required", ()), dict[str, Any]()
        for number, (key, item) in enumerate(schema.get("properties", {}).items()):
            plain = key.isidentifier() and not key.startswith("_")
            field = Field(
                ... if key in required else item.get("default"),
                alias=None if plain else key,
                description=item.get("description"),
                title=item.get("title"),
                validate_default=item.get("format") not in _MUST_EXIST,
            )
            fields[key if plain else f"input_{number}"] = (self.hint(item), field)
        others = {True: "allow", False: "forbid"}.get(schema.get("additionalProperties"), "ignore")  # type: ignore[arg-type]
        config = ConfigDict(extra=others, allow_inf_nan=False, protected_namespaces=())  # type: ignore[typeddict-item]
        with warnings.catch_warnings():  # an input may have the name of a model's method, such as `copy` or `json`
            warnings.simplefilter("ignore")
            return create_model(name, __config__=config, **fields)

    def finish(self, made: type[BaseModel]) -> None:
        """Replace names by models, which recursive models need."""
        inner = [item for item in self._made.values() if isinstance(item, type) and issubclass(item, BaseModel)]
        for model in (*inner, made):
            model.model_rebuild(_types_namespace=self._made)

    def hint(self, schema: Schema) -> Any:
        """Return the annotation of a value with its limits; Any if the schema has no known type."""
        if "$ref" in schema:
            return self._referred(schema["$ref"])
        if "const" in schema:
            return Literal[schema["const"]]
        if "enum" in schema:
            return Literal[tuple(schema["enum"])]
        if members := schema.get("anyOf") or schema.get("oneOf"):
            union = self._union(members)
            return Annotated[union, *_by_kind(schema)] if "discriminator" in schema else union
        if isinstance(kinds := schema.get("type"), list):
            return self._union([{**schema, "type": kind} for kind in kinds])
        bounds = {ours: schema[key] for key, ours in _BOUNDS.items() if key in schema}
        plain = self._plain(schema)
        return Annotated[plain, Field(**bounds)] if bounds and plain not in _FORMATS.values() else plain

    def _plain(self, schema: Schema) -> Any:
        match schema.get("type"):
            case "string":
                return _FORMATS.get(schema.get("format", ""), str)
            case "array":
                return self._sequence(schema)
            case "object" if "properties" in schema:
                return self.model(schema, schema.get("title", "Inputs"))
            case "object":
                values = schema.get("additionalProperties")
                return dict[str, self.hint(values) if isinstance(values, Mapping) else Any]  # type: ignore[misc]
            case str() as kind:
                return {"integer": int, "number": float, "boolean": bool, "null": None}.get(kind, Any)
        return Any

    def _sequence(self, schema: Schema) -> Any:
        if parts := schema.get("prefixItems"):
            return tuple[tuple(self.hint(part) for part in parts)]  # type: ignore[misc]
        items: Any = self.hint(schema.get("items", {}))
        holder: Any = set if schema.get("uniqueItems") else list
        return holder[items]

    def _union(self, members: Any) -> Any:
        quantity = next((_QUANTITIES[item["format"]] for item in members if item.get("format") in _QUANTITIES), None)
        if quantity is None:
            return Union[tuple(self.hint(item) for item in members)]  # noqa: UP007 - the members are known only at run time
        return quantity | None if any(item.get("type") == "null" for item in members) else quantity

    def _referred(self, reference: str) -> Any:
        name = reference.rpartition("/")[2]
        if name not in self._made:
            self._made[name] = ForwardRef(name)  # for recursive models
            schema = self._definitions[name]
            is_model = schema.get("type") == "object" and "properties" in schema
            self._made[name] = self.model(schema, name) if is_model else self.hint(schema)
        return self._made[name]
