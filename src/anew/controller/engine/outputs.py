"""Where jobs write: each kind of thing that takes their records is an *output*, which says what their wing cannot know.

A generation gets an output of its own, which no other one writes into; to cut over is to let readers ask another one.
A wing registers its output in the `Outputs` of the context, as it does its subject.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anew.api.jobs.place import OutputPlace
from anew.catalog.change import Put
from anew.core.errors import InvalidRequest
from anew.core.stamp import Origin

if TYPE_CHECKING:
    from anew.controller.engine.context import Context


@dataclass(frozen=True, slots=True)
class Writer:
    """A generation that is to get an output.

    Attributes:
        origin: Under which its records are stamped.
        name: Of the output, such as a store's.
        replaces: What the generation writes into whose place it takes; None for the first.
        is_whole: Whether it reads every record that its inputs ever had: an output that begins empty is right then.
        rebuild: The id of its rebuild.
        goes_on: Whether it goes on in the place of the one that it replaces, into what that one wrote.
        wrote_before: What the generations of its job write into, or did. A deleted job may have had the same name.
        silent: What nobody writes into any more: all of its generations, of whichever job, are over.
    """

    origin: Origin
    name: str
    replaces: str | None
    is_whole: bool
    rebuild: str
    goes_on: bool = False
    wrote_before: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Opened:
    """An output that is announced: it is made once that is committed.

    Attributes:
        where: What it is known by.
        version: The version of a store that follows it alone.
        puts: What is committed with the generation.
    """

    where: str
    version: int | None = None
    puts: tuple[Put, ...] = ()


@dataclass(frozen=True, slots=True)
class Owned:
    """A part of an output.

    Attributes:
        what: ``topic``, ``version``.
        name: As people know it.
        bytes, records: How much it is, where that is known.
    """

    what: str
    name: str
    bytes: int | None = None
    records: int | None = None


class Output(ABC):
    """One kind of thing that jobs write into."""

    kind: ClassVar[str]
    by_key: ClassVar[bool]
    """Whether what is written takes the place of what was written before with the same key."""

    @abstractmethod
    def uid_of(self, context: Context, name: str) -> str:
        """The uid of the one of that name.

        Raises:
            NotFound: ``unknown_…``.
        """

    def notes(self, context: Context, name: str, replaces: str | None) -> tuple[str, ...]:
        """What a plan says of the output of the next generation, a line each.

        Args:
            context: The controller's collaborators.
            name: Of the output.
            replaces: What the generation writes into whose place it takes; None for the first.
        """
        return ()

    def floor_ms(self, context: Context, name: str) -> int:
        """Older records are turned away where their key is not there, because deletes were forgotten; 0: none are."""
        return 0

    @abstractmethod
    def open(self, context: Context, writer: Writer) -> Opened:
        """An output for a generation.

        Raises:
            Refused: It cannot get one; nothing was changed.
        """

    @abstractmethod
    def made(self, context: Context, name: str, where: str) -> OutputPlace | None:
        """Where the records of an announced output go, once it is there: what is missing is made; None: not yet."""

    @abstractmethod
    def served(self, context: Context, name: str, where: str) -> bool:
        """Whether readers could be sent to it now: it holds, for all that it knows, what was appended."""

    @abstractmethod
    def can_serve_again(self, context: Context, name: str, where: str) -> bool:
        """Whether readers could ever be sent back to it; where not, whoever writes it writes for nobody."""

    @abstractmethod
    def cut_over(self, context: Context, name: str, before: str | None, after: str) -> tuple[Put, ...]:
        """What lets readers ask another output than the one before.

        Raises:
            Refused: It cannot be served.
        """

    @abstractmethod
    def owned(self, context: Context, name: str, where: str) -> tuple[Owned, ...]:
        """What goes with an output when it is closed."""

    @abstractmethod
    def close(self, context: Context, name: str, where: Collection[str]) -> tuple[Put, ...]:
        """What gives up outputs that nobody reads: their parts are noted as to be reclaimed.

        Raises:
            Refused: ``topic_in_use``: somebody does read one.
        """

    @abstractmethod
    def gone(self, context: Context, name: str, where: str) -> tuple[Put, ...] | None:
        """What removes the last of a closed output; None: somebody still needs it."""

    @abstractmethod
    def is_read(self, context: Context, where: str) -> bool:
        """Whether readers may still ask which batches of the generation count that wrote it."""


class Outputs:
    """The outputs that a controller knows, by their kinds."""

    def __init__(self, outputs: Iterable[Output]) -> None:
        """Register them."""
        self._by_kind = {output.kind: output for output in outputs}

    def of_kind(self, kind: str) -> Output:
        """Who knows outputs of a kind.

        Raises:
            InvalidRequest: ``unknown_output``.
        """
        found = self._by_kind.get(kind)
        if found is None:
            expected = ", ".join(sorted(self._by_kind))
            raise InvalidRequest("unknown_output", "jobs do not write into this", found=kind, expected=expected)
        return found


NO_OUTPUTS = Outputs(())
