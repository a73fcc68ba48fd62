"""Avro schemas, parsed once: full names, checked defaults, one canonical text."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anew.codec.datum import default_compiler
from anew.codec.misfit import ValueMisfit, describe, nearest_name
from anew.codec.nodes import NAMED_KINDS, PRIMITIVES, Named, Node, base_type, resolve
from anew.core.errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEY_ORDER = ("name", "namespace", "type", "logicalType", "fields", "symbols", "items", "values", "size", "default")


@dataclass(frozen=True, eq=False)
class AvroSchema:
    """A parsed Avro schema; equal to another when the canonical texts are equal.

    Attributes:
        canonical: JSON text with full names and a fixed order of keys; defaults, logical types, aliases and
            docs are kept, so that the text alone is the schema.
        name: The full name of a named type, else the type's own name (``string``, ``union``).
        root: The normalised schema.
        named: Full name → definition of every named type inside.
    """

    canonical: str
    name: str
    root: Node = field(repr=False)
    named: Named = field(repr=False)

    @property
    def fields(self) -> dict[str, bool]:
        """The fields of a record and whether each has a default; empty for every other schema."""
        node: Any = json.loads(self.canonical)
        if not isinstance(node, dict) or node.get("type") != "record":
            return {}
        return {str(field["name"]): "default" in field for field in node["fields"]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_schema, (self.canonical,)


def parse_schema(text_or_obj: Any) -> AvroSchema:
    """Parse a schema.

    Args:
        text_or_obj: A JSON text, a dict or list, or a primitive's name such as ``string``.

    Raises:
        InvalidRequest: ``bad_schema``, with what is wrong and where.
    """
    if isinstance(text_or_obj, str):
        return _parse_text(text_or_obj)
    return _parse_object(text_or_obj)


def check_key_schema(schema: AvroSchema) -> None:
    """Refuse a key schema that holds a map, an array or a floating-point number.

    Their bytes are not one-to-one with the values: blocks may be cut and maps ordered at will, and a float has
    two zeros.

    Raises:
        InvalidRequest: ``bad_key_schema``, naming the path of the field.
    """
    _check_key_node(schema.root, schema.named, "key", set())


def schema_of_node(node: Node, named: Named) -> AvroSchema:
    """A part of a schema as a schema of its own."""
    return _parse_object(_spelled_out(node, named, set()))


def _spelled_out(node: Node, named: Named, defined: set[str]) -> Node:
    """A node as a schema of its own: each named type defined where it is first met."""
    if isinstance(node, list):
        return [_spelled_out(branch, named, defined) for branch in node]
    node = resolve(node, named)
    if isinstance(node, str):
        return node
    if "name" in node:
        if node["name"] in defined:
            return node["name"]
        defined.add(node["name"])
    own = dict(node)
    for inner in ("items", "values"):
        if inner in own:
            own[inner] = _spelled_out(own[inner], named, defined)
    if "fields" in own:
        own["fields"] = [{**one, "type": _spelled_out(one["type"], named, defined)} for one in own["fields"]]
    return own


def _check_key_node(node: Node, named: Named, where: str, seen: set[str]) -> None:
    node = resolve(node, named)
    of_type = "union" if isinstance(node, list) else base_type(node)
    if of_type in ("map", "array", "float", "double"):
        raise InvalidRequest(
            "bad_key_schema",
            f"a key cannot contain a {of_type}",
            found=f"{of_type} at {where}",
            expected="null, boolean, int, long, string, bytes, enum, fixed, or records and unions of these",
            hint="equal keys must have equal bytes; use a string, a long or a decimal instead",
        )
    if of_type == "union":
        for branch in node:
            _check_key_node(branch, named, where, seen)
    elif of_type == "record" and node["name"] not in seen:
        seen.add(node["name"])
        for column in node["fields"]:
            _check_key_node(column["type"], named, f"{where}.{column['name']}", seen)


@functools.lru_cache(maxsize=1024)
def _parse_text(text: str) -> AvroSchema:
    stripped = text.strip()
    if stripped in PRIMITIVES:
        return _parse_object(stripped)
    try:
        obj = json.loads(stripped)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            "bad_schema",
            f"the schema is no JSON: {error.msg} (line {error.lineno}, column {error.colno})",
            found=describe(text),
            expected="an Avro schema as JSON, or a primitive's name",
            hint=nearest_name(stripped, PRIMITIVES),
        ) from None
    return _parse_object(obj)


def _parse_object(obj: Any) -> AvroSchema:
    parser = _Parser()
    root = parser.node(obj, "", "schema")
    parser.check_defaults()
    name = root if isinstance(root, str) else "union" if isinstance(root, list) else root.get("name", root["type"])
    return AvroSchema(json.dumps(root, ensure_ascii=False, separators=(",", ":")), name, root, parser.named)


def _bad(where: str, message: str, found: Any, expected: str, hint: str | None = None) -> InvalidRequest:
    return InvalidRequest("bad_schema", f"{where}: {message}", found=found, expected=expected, hint=hint)


class _Parser:
    """Normalises a schema while remembering where it is."""

    def __init__(self) -> None:
        self.named: dict[str, Node] = {}
        self.defaults: list[tuple[str, Node, Any]] = []

    def node(self, obj: Any, namespace: str, where: str) -> Node:
        """The normalised form of a node; ``namespace`` is the one that encloses it."""
        if isinstance(obj, str):
            return self._reference(obj, namespace, where)
        if isinstance(obj, list):
            return self._union(obj, namespace, where)
        if not isinstance(obj, Mapping):
            raise _bad(where, "this is no schema", describe(obj), "a type's name, an object or a list")
        if "type" not in obj:
            raise _bad(where, "the object has no type", f"keys {', '.join(map(str, obj))}", 'a key "type"')
        of_type = obj["type"]
        if not isinstance(of_type, str):
            return self.node(of_type, namespace, where)
        if of_type in ("record", "error"):
            return self._record(obj, namespace, where)
        if of_type in NAMED_KINDS:
            return self._enum_or_fixed(obj, namespace, where)
        if of_type in ("array", "map"):
            inner = "items" if of_type == "array" else "values"
            if inner not in obj:
                raise _bad(where, f"the {of_type} has no {inner}", None, f'a key "{inner}"')
            return _ordered({**obj, inner: self.node(obj[inner], namespace, f"{where}.{inner}")})
        if of_type in PRIMITIVES:
            _check_logical(obj, where)
            return of_type if set(obj) == {"type"} else _ordered(obj)
        return self._reference(of_type, namespace, where)

    def check_defaults(self) -> None:
        """Refuse defaults that do not fit; last, because a default's type may be named further down."""
        compiler = default_compiler(self.named)
        for where, node, raw in self.defaults:
            try:
                compiler.compile(node)(raw)
            except ValueMisfit as misfit:
                place = f" at {misfit.where()}" if misfit.path else ""
                raise _bad(where, f"the default does not fit the type{place}", misfit.found, misfit.expected) from None

    def _reference(self, name: str, namespace: str, where: str) -> str:
        if name in PRIMITIVES:
            return name
        inherited = f"{namespace}.{name}" if namespace and "." not in name else name
        if inherited in self.named:
            return inherited
        hint = nearest_name(name, [*PRIMITIVES, *self.named])
        raise _bad(where, "the type is unknown", name, "a primitive, or a type named before its use", hint)

    def _union(self, obj: list[Any], namespace: str, where: str) -> list[Node]:
        branches = [self.node(branch, namespace, f"{where}[{index}]") for index, branch in enumerate(obj)]
        if not branches:
            raise _bad(where, "the union is empty", "[]", "at least one branch")
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, list):
                raise _bad(where, "a union stands directly in a union", "union", "any other type as a branch")
            resolved = resolve(branch, self.named)
            of_type = base_type(resolved)
            label = resolved["name"] if of_type in NAMED_KINDS else of_type
            if label in seen:
                raise _bad(where, "the union has the same type twice", label, "each type once")
            seen.add(label)
        return branches

    def _name(self, obj: Mapping[str, Any], namespace: str, where: str) -> tuple[str, str]:
        """The full name and its namespace, after checking that both are well formed and new."""
        name = obj.get("name")
        if not isinstance(name, str) or _NAME.match(name) is None:
            raise _bad(where, f"the {obj['type']} has no valid name", describe(name), "letters, digits and _")
        if "." not in name:
            own = obj.get("namespace", namespace)
            if not isinstance(own, str) or (own and _NAME.match(own) is None):
                raise _bad(where, "the namespace is not valid", describe(own), "names joined by dots")
            name = f"{own}.{name}" if own else name
        if name in PRIMITIVES:
            raise _bad(where, "a primitive's name cannot be given away", name, "another name")
        if name in self.named:
            raise _bad(where, "the name is defined twice", name, "a new name, or the name alone to refer to it")
        return name, name.rpartition(".")[0]

    def _record(self, obj: Mapping[str, Any], namespace: str, where: str) -> Node:
        full, inside = self._name(obj, namespace, where)
        fields = obj.get("fields")
        if not isinstance(fields, list):
            raise _bad(where, "the record has no list of fields", describe(fields), 'a key "fields" with a list')
        record: dict[str, Any] = {"name": full, "type": "record"}
        self.named[full] = record
        columns: dict[str, Node] = {}
        for index, column in enumerate(fields):
            place = f"{where}.fields[{index}]"
            if not isinstance(column, Mapping) or not isinstance(column.get("name"), str):
                raise _bad(place, "the field has no name", describe(column), 'an object with "name" and "type"')
            name = column["name"]
            place = f"{where}.{name}"
            if _SYMBOL.match(name) is None:
                raise _bad(place, "the field's name is not valid", name, "letters, digits and _")
            if name in columns:
                raise _bad(place, "the field is there twice", name, "each name once")
            if "type" not in column:
                raise _bad(place, "the field has no type", None, 'a key "type"')
            node = self.node(column["type"], inside, place)
            columns[name] = _ordered({**column, "type": node})
            if "default" in column:
                self.defaults.append((place, node, column["default"]))
        rest = {**obj, "name": full, "type": "record", "fields": list(columns.values())}
        record.clear()
        record.update(_ordered(_with_namespace(rest, full, namespace)))
        return record

    def _enum_or_fixed(self, obj: Mapping[str, Any], namespace: str, where: str) -> Node:
        full, _ = self._name(obj, namespace, where)
        if obj["type"] == "enum":
            symbols = obj.get("symbols")
            if not isinstance(symbols, list) or not symbols or len(set(map(str, symbols))) != len(symbols):
                raise _bad(where, "the enum's symbols are not valid", describe(symbols), "a list of distinct symbols")
            for symbol in symbols:
                if not isinstance(symbol, str) or _SYMBOL.match(symbol) is None:
                    raise _bad(where, "a symbol is not valid", describe(symbol), "letters, digits and _")
            if "default" in obj and obj["default"] not in symbols:
                raise _bad(where, "the enum's default is no symbol", describe(obj["default"]), ", ".join(symbols))
        else:
            size = obj.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise _bad(where, "the fixed has no valid size", describe(size), "a positive number of bytes")
            _check_logical(obj, where)
        self.named[full] = _ordered(_with_namespace({**obj, "name": full}, full, namespace))
        return self.named[full]


def _check_logical(obj: Mapping[str, Any], where: str) -> None:
    if obj.get("logicalType") != "decimal" or obj["type"] not in ("bytes", "fixed"):
        return
    precision, scale = obj.get("precision"), obj.get("scale", 0)
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (precision, scale))
    if not whole or not isinstance(precision, int) or precision < 1 or not 0 <= scale <= precision:
        found = f"precision {precision}, scale {scale}"
        raise _bad(where, "the decimal is not valid", found, "precision of at least 1, scale from 0 to precision")


def _with_namespace(obj: dict[str, Any], full: str, enclosing: str) -> dict[str, Any]:
    """The full name says the namespace, except where a bare name would inherit the enclosing one."""
    obj.pop("namespace", None)
    return {**obj, "namespace": ""} if "." not in full and enclosing else obj


def _ordered(obj: Mapping[str, Any]) -> dict[str, Any]:
    first = {key: obj[key] for key in _KEY_ORDER if key in obj}
    return {**first, **{key: obj[key] for key in sorted(obj) if key not in first}}
