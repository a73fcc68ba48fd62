"""May a new schema read what older ones wrote? Avro's schema resolution, decided before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from anew.codec.nodes import Named, Node, base_type, kind, resolve, type_name
from anew.codec.schema import AvroSchema
from anew.core.errors import InvalidRequest

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def can_read(reader: AvroSchema, writer: AvroSchema) -> bool:
    """Whether every datum written under ``writer`` can be read as ``reader``."""
    return _Resolution(reader.named, writer.named).refusal(reader.root, writer.root, "value") is None


def check_evolution(old: Sequence[AvroSchema], new: AvroSchema) -> None:
    """Check that a new value schema reads the data of every older one.

    Fields may go, come with a default, be promoted (int to long and so on) or become nullable. A logical type
    may not change: the bytes would be read, as another value.

    Raises:
        InvalidRequest: ``incompatible_schema``, naming the field and the older schema (counted from 1).
    """
    for number, writer in enumerate(old, start=1):
        refusal = _Resolution(new.named, writer.named).refusal(new.root, writer.root, "value")
        if refusal is not None:
            where, found, expected = refusal
            raise InvalidRequest(
                "incompatible_schema",
                f"the new schema cannot read data of value schema {number}, at {where}",
                found=found,
                expected=expected,
                hint="give added fields a default, keep types or promote them, keep names or add aliases",
            )


Refusal = tuple[str, str, str]  # where, found, expected


class _Resolution:
    """Resolves one reader against one writer; pairs of records under way count as readable (recursion)."""

    def __init__(self, reader_named: Named, writer_named: Named) -> None:
        self._reader_named = reader_named
        self._writer_named = writer_named
        self._under_way: set[tuple[str, str]] = set()

    def refusal(self, reader: Node, writer: Node, where: str) -> Refusal | None:
        """None where the reader reads everything that the writer writes."""
        reader, writer = resolve(reader, self._reader_named), resolve(writer, self._writer_named)
        if isinstance(writer, list):
            return next(filter(None, (self.refusal(reader, branch, where) for branch in writer)), None)
        if isinstance(reader, list):
            return self._in_union(reader, writer, where)
        if base_type(reader) != base_type(writer) or kind(reader) != kind(writer):
            promoted = kind(reader) in _PROMOTIONS.get(kind(writer), set())
            return None if promoted else self._differ(reader, writer, where)
        of_type = base_type(reader)
        if of_type == "array":
            return self.refusal(reader["items"], writer["items"], f"{where}[]")
        if of_type == "map":
            return self.refusal(reader["values"], writer["values"], f"{where}{{}}")
        if of_type in ("record", "enum", "fixed") and not _same_name(reader, writer):
            return where, f"{of_type} {reader['name']}", f"{of_type} {writer['name']}, or an alias of that name"
        if of_type == "record":
            return self._record(reader, writer, where)
        if of_type == "enum":
            return self._enum(reader, writer, where)
        if kind(reader).endswith("-decimal") and _decimal_of(reader) != _decimal_of(writer):
            return self._differ(reader, writer, where)
        if of_type == "fixed" and reader["size"] != writer["size"]:
            return self._differ(reader, writer, where)
        return None

    def _differ(self, reader: Node, writer: Node, where: str) -> Refusal:
        return where, type_name(reader, self._reader_named), f"what reads {type_name(writer, self._writer_named)}"

    def _in_union(self, reader: list[Node], writer: Node, where: str) -> Refusal | None:
        refusals = [self.refusal(branch, writer, where) for branch in reader]
        if None in refusals:
            return None
        # A branch that failed further inside is the one that was meant.
        inner = [refusal for refusal in refusals if refusal is not None and refusal[0] != where]
        return inner[0] if inner else self._differ(reader, writer, where)

    def _record(self, reader: Node, writer: Node, where: str) -> Refusal | None:
        pair = (reader["name"], writer["name"])
        if pair in self._under_way:
            return None
        self._under_way.add(pair)
        written = {column["name"]: column for column in writer["fields"]}
        for column in reader["fields"]:
            place = f"{where}.{column['name']}"
            names = [column["name"], *column.get("aliases", [])]
            source = next((written[name] for name in names if name in written), None)
            if source is None:
                if "default" not in column:
                    return place, "an added field without a default", "a default"
                continue
            refusal = self.refusal(column["type"], source["type"], place)
            if refusal is not None:
                return refusal
        return None

    def _enum(self, reader: Node, writer: Node, where: str) -> Refusal | None:
        lost = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        if lost and "default" not in reader:
            return where, f"symbols removed: {', '.join(lost)}", "all old symbols, or an enum default"
        return None


def _same_name(reader: Node, writer: Node) -> bool:
    short = writer["name"].rpartition(".")[2]
    aliases = reader.get("aliases", [])
    return bool(reader["name"].rpartition(".")[2] == short or writer["name"] in aliases or short in aliases)


def _decimal_of(node: Node) -> tuple[int, int]:
    return int(node["precision"]), int(node.get("scale", 0))
