"""The hash by which configuration is compared: stale is ``stamped hash ≠ wanted hash``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ALGORITHM = "c1"
"""Which canonical form was hashed; a change of the form gets a new name, so that hashes of two forms never meet."""


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def value_hash(value: Any) -> str:
    """32 hex digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:32]


def config_hash(frozen: Mapping[str, Any]) -> str:
    """The hash of a version's frozen configuration, defaults made explicit: ``c1-…``."""
    return f"{ALGORITHM}-{value_hash(dict(frozen))}"
