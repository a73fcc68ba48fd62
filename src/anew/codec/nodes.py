"""Nodes of a normalised Avro schema, and the one way to tell their kinds apart.

A node is a primitive's name, the full name of a named type, a dict with a ``type``, or a list (a union).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Node = Any
Named = Mapping[str, Node]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED_KINDS = frozenset({"record", "enum", "fixed"})

CALLED = "anew.called"
"""The attribute of a type that has another name for people, as a table's types have."""

# Base type and logical type of every pair that has a meaning here; any other logical type is ignored, as the
# Avro specification asks of a reader that does not know it.
LOGICAL_KINDS = frozenset(
    {
        "long-timestamp-millis",
        "long-timestamp-micros",
        "long-local-timestamp-millis",
        "long-local-timestamp-micros",
        "int-date",
        "int-time-millis",
        "long-time-micros",
        "bytes-decimal",
        "fixed-decimal",
        "string-uuid",
    }
)


def resolve(node: Node, named: Named) -> Node:
    """The node itself, or the definition that its name stands for."""
    if isinstance(node, str) and node not in PRIMITIVES:
        return named[node]
    return node


def kind(node: Node) -> str:
    """The kind of a resolved node: ``union``, a type's name, or base and logical type joined by a hyphen."""
    if isinstance(node, list):
        return "union"
    if isinstance(node, str):
        return node
    base = str(node["type"])
    logical = f"{base}-{node.get('logicalType')}"
    return logical if logical in LOGICAL_KINDS else base


def base_type(node: Node) -> str:
    """The Avro type of a resolved node without its logical type."""
    return kind(node).partition("-")[0]


def type_name(node: Node, named: Named) -> str:
    """What a person calls the type, for the ``expected`` of an error."""
    node = resolve(node, named)
    if isinstance(node, dict) and CALLED in node:
        return str(node[CALLED])
    of_kind = kind(node)
    if of_kind == "union":
        return " or ".join(type_name(branch, named) for branch in node)
    if of_kind == "enum":
        return f"one of {', '.join(node['symbols'])}"
    if of_kind == "fixed":
        return f"fixed of {node['size']} bytes"
    if of_kind.endswith("-decimal"):
        return f"decimal({node['precision']}, {node.get('scale', 0)})"
    if of_kind == "record":
        return f"record {node['name']}"
    return of_kind.partition("-")[2] if of_kind in LOGICAL_KINDS else of_kind


def nullable_of(node: Node, named: Named) -> tuple[Node, int | None]:
    """Split ``["null", X]`` or ``[X, "null"]`` into X and the index of its null branch.

    Returns:
        The resolved node of X and the index of the null branch; any other node comes back with None.
    """
    node = resolve(node, named)
    if isinstance(node, list) and len(node) == 2 and node.count("null") == 1:
        null_branch = node.index("null")
        return resolve(node[1 - null_branch], named), null_branch
    return node, None


def plain_node(node: Node) -> Node:
    """A node without logical types but decimals, without defaults and aliases."""
    if isinstance(node, list):
        return [plain_node(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key not in ("aliases", "default")}
    if not kind(node).endswith("-decimal"):
        plain.pop("logicalType", None)
    for inner in ("items", "values"):
        if inner in plain:
            plain[inner] = plain_node(plain[inner])
    if "fields" in plain:
        plain["fields"] = [{"name": one["name"], "type": plain_node(one["type"])} for one in plain["fields"]]
    return plain
