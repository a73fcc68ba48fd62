"""One walk over schema and value, compiled once per schema; what happens at the leaves is a table.

Checking a datum, reading defaults and both directions of the JSON face differ only in their leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anew.codec.misfit import ValueMisfit, describe, nearest_name
from anew.codec.nodes import Named, Node, kind, resolve, type_name

Step = Callable[[Any], Any]
Leaf = Callable[[Node], Step]
Fill = Callable[[Node, Any, Step], Callable[[], Any]]


@dataclass(frozen=True)
class Direction:
    """What a walk does where it ends.

    Attributes:
        leaves: Kind of node → maker of the step that converts or refuses (ValueMisfit) a value.
        fill: Called with (type node, the schema's raw default, step of the type); returns a maker of the value
            that a missing field takes.
    """

    leaves: Mapping[str, Leaf]
    fill: Fill


@dataclass
class Compiler:
    """Compiles the steps of one schema in one direction; named types are compiled once, so recursion ends."""

    named: Named
    direction: Direction
    _done: dict[str, Step] = field(default_factory=dict)

    def compile(self, node: Node) -> Step:
        """The step of a node: takes a value, returns the converted one, raises ValueMisfit."""
        node = resolve(node, self.named)
        of_kind = kind(node)
        if of_kind == "union":
            return self._union(node)
        if of_kind == "array":
            return self._array(node)
        if of_kind == "map":
            return self._map(node)
        if of_kind == "record":
            return self._record_once(node)
        return self.direction.leaves[of_kind](node)

    def _union(self, node: Node) -> Step:
        expected = type_name(node, self.named)
        has_null = "null" in node
        branches = [self.compile(branch) for branch in node if branch != "null"]

        def step(value: Any) -> Any:
            if value is None and has_null:
                return None
            refusals = []
            for branch in branches:
                try:
                    return branch(value)
                except ValueMisfit as misfit:
                    refusals.append(misfit)
            # Where a value went wrong deep inside of a branch, that place says more than the union does.
            deepest = max(refusals, key=lambda misfit: len(misfit.path), default=None)
            if deepest is not None and deepest.path:
                raise deepest
            raise ValueMisfit(describe(value), expected)

        return step

    def _array(self, node: Node) -> Step:
        items = self.compile(node["items"])

        def step(value: Any) -> Any:
            if not isinstance(value, list | tuple):
                raise ValueMisfit(describe(value), "array")
            converted = []
            for index, item in enumerate(value):
                try:
                    converted.append(items(item))
                except ValueMisfit as misfit:
                    raise misfit.below(f"[{index}]") from None
            return converted

        return step

    def _map(self, node: Node) -> Step:
        values = self.compile(node["values"])

        def step(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise ValueMisfit(describe(value), "map")
            converted = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueMisfit(describe(key), "a string as the key of a map")
                try:
                    converted[key] = values(item)
                except ValueMisfit as misfit:
                    raise misfit.below(f"[{key!r}]") from None
            return converted

        return step

    def _record_once(self, node: Node) -> Step:
        name = node["name"]
        if name not in self._done:
            # Put first, so that a record that contains itself finds it.
            self._done[name] = lambda value: self._done[name](value)
            self._done[name] = self._record(node)
        return self._done[name]

    def _record(self, node: Node) -> Step:
        expected = type_name(node, self.named)
        steps: dict[str, Step] = {}
        fills: dict[str, Callable[[], Any]] = {}
        for column in node["fields"]:
            steps[column["name"]] = self.compile(column["type"])
            if "default" in column:
                fills[column["name"]] = self.direction.fill(column["type"], column["default"], steps[column["name"]])
        types = {column["name"]: type_name(column["type"], self.named) for column in node["fields"]}

        def step(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise ValueMisfit(describe(value), expected)
            converted = {}
            for name, convert in steps.items():
                try:
                    if name in value:
                        converted[name] = convert(value[name])
                    elif name in fills:
                        converted[name] = fills[name]()
                    else:
                        _refuse_unknown(value, steps)
                        raise ValueMisfit("nothing: the field is missing", types[name]).below(name)
                except ValueMisfit as misfit:
                    raise (misfit if name not in value else misfit.below(name)) from None
            if not value.keys() <= steps.keys():
                _refuse_unknown(value, steps)
            return converted

        return step


def _refuse_unknown(value: Mapping[Any, Any], known: Mapping[str, Step]) -> None:
    """Refuse a field that the record does not have; a misspelt name is told before the field that it leaves missing."""
    for name in value:
        if name not in known:
            found = "a field that the schema does not have"
            hint = nearest_name(str(name), known)
            raise ValueMisfit(found, f"one of {', '.join(known)}", hint).below(str(name))
