"""The roots of all wire models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """The root of all wire models: immutable, and unknown fields are passed over so that fields may be added."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Request(BaseModel):
    """The root of all requests: immutable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """An example for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [fields]})
