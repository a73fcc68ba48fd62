"""Addresses of servers as people write them."""

from __future__ import annotations

from anew.core.errors import InvalidRequest


def check_brokers(text: str) -> None:
    """Raise unless this names brokers: ``HOST:PORT``, several separated by commas.

    Raises:
        InvalidRequest: ``bad_brokers``.
    """
    if not names_brokers(text):
        raise InvalidRequest(
            "bad_brokers", "this names no brokers", found=text, expected="HOST:PORT,HOST:PORT of some of the brokers"
        )


def names_brokers(text: str) -> bool:
    """Whether this is ``HOST:PORT``, several separated by commas."""
    return all(_is_address(broker) for broker in text.split(","))


def _is_address(broker: str) -> bool:
    host, colon, port = broker.rpartition(":")
    return bool(host and colon) and "/" not in host and port.isdigit() and 0 < int(port) < 65_536
