"""What servers ask of every request before a handler sees it: parameters that the route has, and bodies of its type.

What decides over a right must be read in one way only: a name that is given twice, or in two places, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from anew.api.rights import Content, Need
from anew.core.errors import InvalidRequest
from anew.core.suggest import did_you_mean

_SIMPLE = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""What a web page may send to any server without asking it first (the Fetch standard's safelisted types)."""


class NotJson(InvalidRequest):
    """The body is not of the type that the route takes; nothing was changed."""

    http_status = 415


def check_parameters(given: Iterable[tuple[str, str]], known: Collection[str], need: Need) -> None:
    """Raise unless a route has all parameters of a query, each given once.

    Raises:
        InvalidRequest: ``unknown_parameter``, ``repeated_parameter``, ``two_names``.
    """
    seen: dict[str, str] = {}
    for name, value in given:
        if name not in known:
            raise InvalidRequest(
                "unknown_parameter",
                f"the route has no parameter {name[:100]}",
                found=name[:100],
                expected=", ".join(sorted(known)) if known else "no parameters",
                hint=did_you_mean(name, known),
            )
        if name in seen:
            message = f"the parameter {name} is given twice"
            raise InvalidRequest("repeated_parameter", message, found=name, expected="once")
        seen[name] = value
    if set(need.names) & set(known):
        the_one_named(seen, need)


def check_content(content_type: str | None, content: Content) -> None:
    """Raise unless a body is of a type that a route takes.

    Raises:
        NotJson: ``not_json``.
    """
    kind = "" if content_type is None else content_type.partition(";")[0].strip().lower()
    fits = kind not in _SIMPLE if content is Content.KEYS else _is_json(kind)
    if not fits:
        raise NotJson(
            "not_json",
            "the body is not of the type that this takes",
            found=f"content-type: {content_type[:100]}" if content_type else "no content-type",
            expected=content.value,
            hint="send the header content-type: application/json" if content is Content.JSON else None,
        )


def parse_object(body: bytes) -> dict[str, Any]:
    """The members of a JSON object; none where the body is something else, which the handler refuses.

    Raises:
        InvalidRequest: ``repeated_member``: two readers could read it in two ways.
    """
    try:
        said = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def the_one_named(said: Mapping[str, Any], need: Need) -> tuple[str, str] | None:
    """Which name of a store or a table a request gives, and where; None when it gives none.

    Raises:
        InvalidRequest: ``two_names``.
    """
    given = [(name, value) for name in need.names if isinstance(value := said.get(name), str)]
    if len(given) > 1:
        raise InvalidRequest(
            "two_names",
            "the request names two things that it could concern",
            found=", ".join(f"{name} = {value[:100]}" for name, value in given),
            expected=f"one of {', '.join(need.names)}",
        )
    return given[0] if given else None


def _is_json(kind: str) -> bool:
    return kind == Content.JSON or (kind.startswith("application/") and kind.endswith("+json"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise InvalidRequest("repeated_member", "the body has a member twice", found=twice[:100], expected="once")
    return members
