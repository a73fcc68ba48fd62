"""How a CSV file is written: its separator, quotes, encoding and null text, from the options that a reader takes."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from anew.codec.options import checked_options, flag_option
from anew.codec.textfile import check_encoding
from anew.core.errors import InvalidRequest

_KNOWN = (
    "sep",
    "delimiter",
    "quote",
    "escape",
    "header",
    "nullValue",
    "encoding",
    "charset",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "multiLine",
)
_SPELLED = {"\\t": "\t", "\\u0001": "\x01", "\\u0000": "\x00", "\\x01": "\x01"}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How rows and cells are told apart.

    Attributes:
        separator: One ASCII character.
        quote: One ASCII character; inside of quotes it is doubled, or preceded by ``escape``.
        escape: The quote itself (RFC 4180), or the character that takes a quote's meaning away inside of quotes.
        header: Whether the first row names the columns.
        null_text: What stands for null besides nothing at all; never in quotes.
        encoding: A name that Python knows.
        trims: Whether white space around cells goes.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    null_text: str | None = None
    encoding: str = "utf-8"
    trims: bool = False

    @property
    def has_escape(self) -> bool:
        """Whether quotes are escaped by another character than themselves."""
        return self.escape != self.quote


def csv_dialect(options: Mapping[str, str]) -> CsvDialect:
    """The dialect that the options describe.

    Raises:
        InvalidRequest: ``bad_option``: an option that is unknown, that would change which rows there are, or whose
            value is not one that is taken.
    """
    given = checked_options("csv", options, _KNOWN)
    if "multiLine" in given:
        _refuse_unless(
            flag_option(given, "multiLine"),
            "multiLine",
            given["multiLine"],
            "true: line breaks in quotes are always read",
        )
    null_text = given.get("nullValue")
    trims = [flag_option(given, f"ignore{side}WhiteSpace") for side in ("Leading", "Trailing")]
    _refuse_unless(trims[0] == trims[1], "ignoreLeadingWhiteSpace", str(trims[0]).lower(), "the same for both sides")
    quote = _character("quote", given.get("quote", '"'))
    dialect = CsvDialect(
        separator=_character("sep", given.get("sep", given.get("delimiter", ","))),
        quote=quote,
        escape=_character("escape", given.get("escape", quote)),
        header=flag_option(given, "header", default=True),
        null_text=null_text if null_text else None,
        encoding=check_encoding(given.get("encoding", given.get("charset", "utf-8"))),
        trims=trims[0],
    )
    _refuse_unless(dialect.separator != quote, "quote", quote, "another character than the separator")
    return dialect


def _character(name: str, text: str) -> str:
    text = _SPELLED.get(text, text)
    fits = len(text) == 1 and text.isascii() and text not in "\r\n"
    _refuse_unless(fits, name, text, "one ASCII character that ends no line")
    return text


def _refuse_unless(fits: bool, name: str, found: str, expected: str) -> None:  # noqa: FBT001 - the condition itself
    if not fits:
        raise InvalidRequest(
            "bad_option", f"the option {name} does not take this value", found=f"{name}={found}", expected=expected
        )


@dataclass(frozen=True, slots=True)
class RowPatterns:
    """Regular expressions over a block's bytes.

    Attributes:
        row: A row that is well formed, with its line break, from where it begins.
        broken: The longest that a row which is not well formed can be taken for.
        cell: A cell of a row that is well formed, with the separator after it.
    """

    row: re.Pattern[bytes]
    broken: re.Pattern[bytes]
    cell: re.Pattern[bytes]


@functools.lru_cache(maxsize=64)
def row_patterns(dialect: CsvDialect) -> RowPatterns:
    """The patterns of a dialect."""
    quote, separator = re.escape(dialect.quote.encode()), re.escape(dialect.separator.encode())
    escape = re.escape(dialect.escape.encode())
    if dialect.has_escape:
        within = rb"(?:[^" + quote + escape + rb"]++|" + escape + rb"[\s\S])*+"
    else:
        within = rb"(?:[^" + quote + rb"]++|" + quote + quote + rb")*+"
    plain = rb"[^" + separator + rb"\r\n]*+"
    unquoted = rb"(?!" + quote + rb")" + plain
    quoted = quote + within + quote + rb"(?=[" + separator + rb"\r\n]|\Z)"
    cell = rb"(?:" + quoted + rb"|" + unquoted + rb")"
    end = rb"(?:\r\n|\n|\r|\Z)"
    loose = rb"(?:" + quote + within + rb"(?:" + quote + plain + rb"|\Z)|" + unquoted + rb")"
    return RowPatterns(
        re.compile(cell + rb"(?:" + separator + cell + rb")*+" + end),
        re.compile(loose + rb"(?:" + separator + loose + rb")*+" + end),
        re.compile(rb"(" + cell + rb")(?:" + separator + rb"|" + end + rb")"),
    )


def cells_of(row: bytes, dialect: CsvDialect) -> list[bytes | None]:
    """The cells of a row that is well formed; None where there is nothing, not even quotes, or the null text."""
    patterns, cells, at = row_patterns(dialect), list[bytes | None](), 0
    body, quote = row.rstrip(b"\r\n") if not row.endswith(dialect.quote.encode()) else row, dialect.quote.encode()
    while True:
        match = patterns.cell.match(body, at)
        if match is None:
            raise AssertionError("a row that is well formed consists of cells")
        cells.append(_value_of(match[1], quote, dialect))
        if match.end() == match.end(1) or match.end() > len(body):
            return cells
        at = match.end()


def _value_of(cell: bytes, quote: bytes, dialect: CsvDialect) -> bytes | None:
    if cell.startswith(quote):
        inner = cell[1:-1]
        if not dialect.has_escape:
            return inner.replace(quote + quote, quote)
        escape = dialect.escape.encode()
        return re.sub(re.escape(escape) + rb"([" + re.escape(quote) + re.escape(escape) + rb"])", rb"\1", inner)
    if not cell or (dialect.null_text is not None and cell == dialect.null_text.encode()):
        return None
    return cell
