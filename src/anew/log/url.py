"""How a setting names a log."""

from __future__ import annotations

from anew.core.addresses import names_brokers
from anew.core.errors import InvalidRequest

_KAFKA = "kafka://"


def log_kind_and_address(url: str) -> tuple[str, str]:
    """What a setting names: ``kafka://HOST:PORT,…``.

    Raises:
        InvalidRequest: ``bad_log``.
    """
    address = url.removeprefix(_KAFKA)
    if not url.startswith(_KAFKA) or not names_brokers(address):
        raise InvalidRequest(
            "bad_log",
            "this names no log",
            found=url,
            expected="kafka://HOST:PORT,HOST:PORT of some of the brokers",
            hint="leave it out for the embedded log",
        )
    return "kafka", address
