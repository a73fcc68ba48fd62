"""What readers of a job's output may see, worked out from its input with pandas; nothing of the product is imported.

Within what a reader asks, of the records of a key the one with the greatest (time, generation) is served, and of those
that have both in common the last one. Which is the last of them is known within a partition of the input alone: how the
partitions lie to one another is for the batches to say, and each partition's last one may win.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

KNOWN_SECONDS = 5.0
"""So long a client that reads on may go by what it knew of the store: then it asks again (docs/reprocessing.md)."""

Offsets = tuple[int, ...]
"""Of each partition of the input the next offset; one that is not named was added later, and begins at 0."""
Cell = tuple[str, int]
"""A value's text, and when it was written (ms)."""
Row = tuple[str, str | None, int]
"""A record of an output: key, text (None: a delete), time."""

COLUMNS = ("partition", "offset", "key", "n", "text", "at", "deleted", "timestamp")
"""Of a frame of events: where each lies, what it holds, and when it was appended (ms)."""
_LATE_MS, _COARSE_MS = 7_200_000, 60_000


def _at(events: Any) -> Any:
    return events["at"].where(~events["deleted"] & (events["at"] > 0), events["timestamp"])


def _doubled(events: Any) -> Any:
    return pd.concat([events, events.assign(key=events["key"] + "x")])


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda events: events,
    "filtered": lambda events: events[events["deleted"] | (events["n"] % 3 != 0)],
    "rekeyed": lambda events: events.assign(key="r" + events["key"].str[-1]),
    "deleting": lambda events: events.assign(deleted=events["deleted"] | (events["n"] % 3 == 0)),
    "late": lambda events: events.assign(written_at=events["written_at"] - _LATE_MS),
    "coarse": lambda events: events.assign(written_at=events["written_at"] // _COARSE_MS * _COARSE_MS),
    "doubled": _doubled,
}
"""The functions that are submitted: of events with ``written_at`` what is written."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one generation reads.

    Attributes:
        number: The generation's.
        function, tag: What it makes of it.
        start: Where it begins.
        end: Where another one went on; None: it goes on.
    """

    number: int
    function: str
    tag: str
    start: Offsets
    end: Offsets | None = None


def _of_partitions(rows: Any, offsets: Offsets) -> Any:
    """Of each row the offset that its partition has."""
    return rows["partition"].map(dict(enumerate(offsets))).fillna(0)


def made(events: Any, stretch: Stretch, ceiling: Offsets) -> Any:
    """What a generation writes of the events below a ceiling: key, text (None: a delete), time, and whence."""
    end = ceiling if stretch.end is None else tuple(map(min, stretch.end, ceiling))
    offsets = events["offset"]
    read = events[(offsets >= _of_partitions(events, stretch.start)) & (offsets < _of_partitions(events, end))]
    rows = FUNCTIONS[stretch.function](read.assign(written_at=_at(read), generation=stretch.number))
    texts = (rows["text"].fillna("") + f".{stretch.tag}").where(~rows["deleted"].astype(bool), None)
    return rows.assign(text=texts)[["key", "text", "written_at", "generation", "partition", "offset"]]


def records(events: Any, view: Sequence[Stretch], ceiling: Offsets) -> Counter[Row]:
    """All records that some generations write, deletes too, each as often as it is written."""
    frames = [made(events, stretch, ceiling) for stretch in view]
    return Counter(
        (str(row.key), None if pd.isna(row.text) else str(row.text), int(row.written_at))
        for frame in frames
        for row in frame.itertuples()
    )


def allowed(
    events: Any, view: Sequence[Stretch], floor: Offsets, ceiling: Offsets
) -> dict[str, frozenset[Cell | None]]:
    """Key → what may be served of it (None: nothing); a key that is missing has nothing.

    Args:
        events: See `COLUMNS`.
        view: The generations whose records are served.
        floor: At least the events below it have arrived at readers.
        ceiling: At most these are written.
    """
    rows = pd.concat([made(events, stretch, ceiling) for stretch in view])
    rows = rows.assign(settled=rows["offset"] < _of_partitions(rows, floor))
    rows = rows.sort_values(["written_at", "generation", "partition", "offset"], kind="stable")
    return {str(key): _of_key(of_key) for key, of_key in rows.groupby("key")}


def _of_key(rows: Any) -> frozenset[Cell | None]:
    settled = rows[rows["settled"]]
    if settled.empty:
        return frozenset({None, *map(_cell, rows.itertuples())})
    last = settled.iloc[-1]
    ties = settled[(settled["written_at"] == last.written_at) & (settled["generation"] == last.generation)]
    above = (rows["written_at"] > last.written_at) | (
        (rows["written_at"] == last.written_at) & (rows["generation"] >= last.generation)
    )
    may_follow = rows[~rows["settled"] & above]
    return frozenset(map(_cell, [*_last_of(ties), *may_follow.itertuples()]))


def _last_of(ties: Any) -> list[Any]:
    return list(ties.groupby("partition", sort=False).tail(1).itertuples())


def _cell(row: Any) -> Cell | None:
    return None if pd.isna(row.text) else (str(row.text), int(row.written_at))


def difference(found: Mapping[str, Cell | None], may: Mapping[str, frozenset[Cell | None]]) -> str | None:
    """The first keys of which something else is served than may be; None: all is well."""
    nothing: frozenset[Cell | None] = frozenset({None})
    wrong = [
        f"{key}: {found.get(key)}, not of {sorted(map(str, may.get(key, nothing)))}"
        for key in sorted(found.keys() | may.keys())
        if found.get(key) not in may.get(key, nothing)
    ]
    return f"{len(wrong)} keys: {'; '.join(wrong[:4])}" if wrong else None


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader was answered, between two moments (seconds of one clock).

    Attributes:
        found: Key → what was served; a key that is missing: nothing.
        versions: Of the store, that the values were of.
    """

    began: float
    ended: float
    found: Mapping[str, Cell]
    versions: frozenset[int] = frozenset()


@dataclass(slots=True)
class Era:
    """For how long some generations' records were what is served.

    Attributes:
        view: The generations.
        began: When it was asked for.
        ended: When it was acknowledged that something else is served.
        floors: (moment, what had arrived at readers by then), the first one from its beginning.
    """

    view: tuple[Stretch, ...]
    began: float
    ended: float = math.inf
    floors: list[tuple[float, Offsets]] = field(default_factory=list)

    def floor(self, moment: float) -> Offsets:
        """What had arrived by a moment, at least."""
        return [offsets for at, offsets in self.floors if at <= moment or at == self.began][-1]


def _known_until(era: Era, reads: Sequence[Read]) -> float:
    """Until when a reader may go by what it was told in an era: in its last read that began there at the latest."""
    asked = max((read.ended for read in reads if read.began <= era.ended), default=era.ended)
    return max(asked, era.ended) + KNOWN_SECONDS


@dataclass(slots=True)
class Account:
    """All that was done to one job, as far as it decides what readers see.

    Attributes:
        events: The input, a frame of `COLUMNS`; None before its first events.
        writes: (moment before it was written, the ends of the input after it).
    """

    events: Any = None
    writes: list[tuple[float, Offsets]] = field(default_factory=list)
    eras: list[Era] = field(default_factory=list)
    _known: dict[tuple[int, Offsets, Offsets], dict[str, frozenset[Cell | None]]] = field(default_factory=dict)

    @property
    def ends(self) -> Offsets:
        """The ends of the input."""
        return self.writes[-1][1]

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """These events were written, see `COLUMNS`."""
        new = pd.DataFrame(list(rows), columns=list(COLUMNS)).astype({"text": object, "deleted": bool})
        self.events = new if self.events is None else pd.concat([self.events, new], ignore_index=True)

    def serve(self, view: tuple[Stretch, ...], floor: Offsets, asked: float, acknowledged: float) -> None:
        """From now on these generations are served: none of before any more, once that was acknowledged."""
        if self.eras:
            self.eras[-1].ended = acknowledged
        self.eras.append(Era(view, asked, floors=[(asked, floor)]))

    def arrived(self, moment: float, offsets: Offsets) -> None:
        """Readers are served all events below these offsets."""
        self.eras[-1].floors.append((moment, offsets))

    def wrong(self, reads: Sequence[Read]) -> tuple[Read, str] | None:
        """The first of a reader's reads, in their order, that cannot be, and why; None: they can.

        A reader never goes back to what was served before what it has seen.
        """
        until = [_known_until(era, reads) for era in self.eras]
        least = 0
        for read in reads:
            era, why = self._era_of(read, least, until)
            if why is not None:
                return read, why
            least = era
        return None

    def _era_of(self, read: Read, least: int, until: Sequence[float]) -> tuple[int, str | None]:
        """The first era from one on that a read can be of; or why there is none."""
        if len(read.versions) > 1:
            return least, f"a read of several versions: {sorted(read.versions)}"
        ceiling = [offsets for at, offsets in self.writes if at <= read.ended][-1]
        possible = [
            (number, era.floor(read.began))
            for number, era in enumerate(self.eras)
            if number >= least and era.began <= read.ended and until[number] >= read.began
        ]
        said = []
        for number, floor in possible:
            why = difference(read.found, self._allowed(number, floor, ceiling))
            if why is None:
                return number, None
            generations = [stretch.number for stretch in self.eras[number].view]
            said.append(f"of generations {generations}, {floor} to {ceiling}: {why}")
        return least, "; ".join(said) if said else "nothing was served then"

    def wrong_now(self, read: Read) -> str | None:
        """Why a read cannot be of which all events that there are have arrived."""
        return difference(read.found, self._allowed(len(self.eras) - 1, self.ends, self.ends))

    def _allowed(self, era: int, floor: Offsets, ceiling: Offsets) -> dict[str, frozenset[Cell | None]]:
        # What lies below a ceiling was there before anybody could read it, and stays.
        at = era, floor, ceiling
        if at not in self._known:
            self._known[at] = allowed(self.events, self.eras[era].view, floor, ceiling)
        return self._known[at]
