"""What a value of a JSON topic is: one JSON object."""

from __future__ import annotations

import orjson


def is_json_object(value: bytes) -> bool:
    """Whether a value is one JSON object, and nothing behind it."""
    try:
        return type(orjson.loads(value)) is dict
    except orjson.JSONDecodeError:
        return False
