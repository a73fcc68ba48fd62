"""Options of readers: the ones that are known, each once, in any case of letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anew.core.errors import InvalidRequest
from anew.core.suggest import did_you_mean


def checked_options(input_format: str, options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """The options under the names that are known.

    Args:
        input_format: csv, json, parquet or avro.
        options: Names as they were given; Spark's readers take them in any case, so that this does too.
        known: The names that the format takes.

    Raises:
        InvalidRequest: ``bad_option``, with the nearest name.
    """
    by_folded = {name.lower(): name for name in known}
    checked: dict[str, str] = {}
    for name, value in options.items():
        known_name = by_folded.get(name.lower())
        if known_name is None:
            raise InvalidRequest(
                "bad_option",
                f"{input_format} input does not take the option {name}",
                found=f"{name}={value}",
                expected=f"one of {', '.join(known)}" if known else "no option",
                hint=did_you_mean(name, known)
                or "options that change which rows there are, or how many, are not taken: every row is accounted for",
            )
        if known_name in checked:
            raise InvalidRequest("bad_option", f"the option {known_name} is given twice", found=name, expected="once")
        checked[known_name] = value
    return checked


def flag_option(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """An option that is true or false.

    Raises:
        InvalidRequest: ``bad_option``.
    """
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidRequest(
            "bad_option", f"the option {name} does not take this value", found=text, expected="true or false"
        )
    return text == "true"
