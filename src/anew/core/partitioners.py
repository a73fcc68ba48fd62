"""What partitioners are called, and what may be given to them: for those who name one and place no key."""

from __future__ import annotations

import json
import re

from anew.core.errors import InvalidRequest

XXHASH64 = "xxhash64"
_CUSTOM_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_custom(name: str) -> bool:
    """Whether a partitioner's name is one of a user's own, ``module:Class``."""
    return name != XXHASH64


def check_partitioner_name(name: str) -> None:
    """Raise unless it is ``xxhash64`` or ``module:Class``.

    Raises:
        InvalidRequest: ``bad_setting``.
    """
    if is_custom(name) and not _CUSTOM_NAME.fullmatch(name):
        raise InvalidRequest(
            "bad_setting", "partitioner does not accept this value", found=name, expected=f"{XXHASH64} | module:Class"
        )


def check_partitioner_params(text: str) -> None:
    """Raise unless it is a JSON object, the keyword arguments of a partitioner.

    Raises:
        InvalidRequest: ``bad_setting``.
    """
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise InvalidRequest(
            "bad_setting", "partitioner_params does not accept this value", found=text, expected="a JSON object"
        )
