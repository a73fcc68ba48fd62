"""The conservation account of a rebuild: nothing that was read may go missing without a reason (rule R19)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from anew.core.errors import Failed

MODULUS = 1 << 64


class Entry(BaseModel):
    """A number of rows and the sum of their 64-bit hashes modulo 2**64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = 0
    hash: int = 0

    def __add__(self, other: Entry) -> Entry:
        return Entry(count=self.count + other.count, hash=(self.hash + other.hash) % MODULUS)


ZERO = Entry()


class Ledger(BaseModel):
    """What became of every row that a rebuild read.

    ``written`` counts live rows and kept tombstones and is recomputed from the finished files; ``deleted`` counts
    tombstones dropped; ``skipped`` bad rows put aside. ``raised`` is the winners whose time R6 raised: they entered
    with one hash and left with another, and the entry's hash is the difference. ``combined`` is the part of
    ``superseded`` that the scan's combiner kept out of the shuffle.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    read: Entry = ZERO
    superseded: Entry = ZERO
    deleted: Entry = ZERO
    expired: Entry = ZERO
    skipped: Entry = ZERO
    written: Entry = ZERO
    raised: Entry = ZERO
    combined: Entry = ZERO

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})

    @property
    def imbalance(self) -> Entry:
        """What was read less what is accounted for; zero count and zero hash when the ledger balances."""
        out = self.superseded + self.deleted + self.expired + self.skipped + self.written
        return Entry(count=self.read.count - out.count, hash=(self.read.hash + self.raised.hash - out.hash) % MODULUS)

    @property
    def balances(self) -> bool:
        """Whether counts and hashes agree."""
        return self.imbalance == ZERO

    def check(self) -> None:
        """Raise unless the ledger balances.

        Raises:
            Failed: ``ledger_imbalance``, with the account.
        """
        if not self.balances:
            raise Failed(
                "ledger_imbalance",
                "the ledger does not balance: rows were lost or made twice",
                found=self.counts(),
                expected="read = superseded + deleted + expired + skipped + written, in rows and in hashes",
                hint="the new version is not used; run the rebuild again and keep its log",
            )

    def counts(self) -> dict[str, Any]:
        """The entries of the face, as row counts."""
        names = ("read", "superseded", "deleted", "expired", "skipped", "written", "combined")
        return {name: getattr(self, name).count for name in names}


def total_ledger(ledgers: list[Ledger]) -> Ledger:
    """The sum of the ledgers of all tasks."""
    total = Ledger()
    for ledger in ledgers:
        total = total + ledger
    return total
