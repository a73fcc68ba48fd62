"""Where a value lies that ended a query because it does not fit what its table wants now."""

from __future__ import annotations

from anew.core.errors import Failed, InvalidRequest
from anew.core.tables.arrays import Column, mask_of, whole
from anew.core.tables.casts import cast_column
from anew.sql.conversions import Conversion
from anew.sql.instance import Connection, Fault
from anew.sql.views import SegmentFile, TableView, stored_values

_HINT = "a refresh refuses it as well: change the column in the schema, or load the segment again with other values"


def misfit(met: tuple[Conversion, Failed], view: TableView, connection: Connection) -> InvalidRequest:
    """The error about a value that a query met, with its segment and row, as a refresh of that segment counts them.

    Args:
        met: What the conversion said, which saw some rows of some file.
        view: The table.
        connection: To read the column again.
    """
    conversion, error = met
    for file in view.files:
        if conversion.column.name not in file.present:
            continue
        placed = _in_file(file, conversion, connection)
        if placed is not None:
            error = placed
            break
    found = f"{error.found} in the column {conversion.column.name}"
    return InvalidRequest("bad_query", error.message, found=found, expected=error.expected, hint=_HINT)


def _in_file(file: SegmentFile, conversion: Conversion, connection: Connection) -> Failed | None:
    column = conversion.column
    try:
        read = connection.cursor().sql(stored_values(file, column.name, connection)).to_arrow_table()
    except Fault:
        return None
    values: Column = whole(read.column(0))
    try:
        fitting = cast_column(values, column)
    except Failed as error:
        return Failed(
            error.code, f"{error.message} of the segment {file.segment}", found=error.found, expected=error.expected
        )
    if column.nullable or column.default is not None or not fitting.null_count:
        return None
    row = int(mask_of(fitting.is_null()).argmax())
    return Failed(
        "null_value",
        f"the column {column.name} has a null and may have none, in row {row} of the segment {file.segment}",
        expected=column.type,
    )
