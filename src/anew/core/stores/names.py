"""The names of stores, of their versions and of their topics."""

from __future__ import annotations

import re

from anew.core.errors import InvalidRequest
from anew.core.stamp import Origin

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION_TOPIC = re.compile(r"(?P<store>.+)_v(?P<number>[1-9][0-9]*)")


def real_time_topic(store_name: str) -> str:
    """The name of a store's real-time topic, in every fabric."""
    return f"{store_name}_rt"


def dead_letter_topic(store_name: str) -> str:
    """The name of the topic to which a store's dead letters are copied, in the fabric where they are."""
    return f"{store_name}_dead_letters"


def generation_topic(store_name: str, origin: Origin) -> str:
    """The name of the topic that a job's generation writes into for a store: ``flights-clicks-3``.

    No name of a store has a hyphen, so that no two stores have one.
    """
    return f"{store_name}-{origin.name}-{origin.generation}"


def incarnation_counter(store_name: str, fabric: str) -> str:
    """The name of the counter from which all feeds of a store in a fabric get their incarnations.

    It is one for all of them, so that an incarnation says which feed of the store a row came through.
    """
    return f"incarnation/{fabric}/{real_time_topic(store_name)}"


def check_store_name(name: str) -> None:
    """Raise unless a store may have that name.

    Raises:
        InvalidRequest: ``bad_store_name``.
    """
    if not _NAME.fullmatch(name) or _VERSION_TOPIC.fullmatch(name) or name.endswith("_rt"):
        raise InvalidRequest(
            "bad_store_name",
            "a store cannot have this name",
            found=name,
            expected="lower-case letters, digits and _ (at most 64, the first a letter), not ending in _rt or _v<N>",
        )


def parse_version(text: str, store: str) -> int:
    """The number in ``7`` or ``flights_v7``.

    Raises:
        InvalidRequest: ``bad_version``: neither form, or another store's.
    """
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    matched = _VERSION_TOPIC.fullmatch(text)
    if matched is None or matched["store"] != store:
        raise InvalidRequest("bad_version", "this is not a version of the store", found=text, expected=f"{store}_v<N>")
    return int(matched["number"])
