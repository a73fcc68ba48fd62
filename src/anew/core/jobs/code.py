"""The code of a stream job: what it is known by, and how its function is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from anew.core.confighash import value_hash
from anew.core.errors import InvalidRequest
from anew.core.plan import Value

_ENTRY = re.compile(r"(?P<module>[^:]+):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILES = "files"
"""The parameter of a function that is given its files: name → path."""


class Environment(Value):
    """What the code of a job runs in, beside what is frozen with it.

    Attributes:
        python: The minor version, ``3.11``.
        pyspark: The version of PySpark, ``4.2.0``.
    """

    python: str
    pyspark: str

    def __str__(self) -> str:
        return f"Python {self.python}, PySpark {self.pyspark}"

    @property
    def series(self) -> tuple[str, ...]:
        """What decides how a function behaves and a checkpoint is read: a patch of PySpark changes neither."""
        return (self.python, *self.pyspark.split(".")[:2])


class Shape(Value):
    """What a function keeps of each record, as Spark's plan of its frame says; what the plan does not say is not kept.

    Attributes:
        rows: Each record gives a row.
        key: Its row has the record's key.
        time: Its row is written at the record's timestamp.
        state: The operators of the function's frame that keep state between batches, as Spark names them.
    """

    rows: bool
    key: bool
    time: bool
    state: tuple[str, ...] = Field(default=(), exclude_if=lambda state: not state)


class JobCode(Value):
    """A function with all that it was frozen with.

    Attributes:
        module: Its module, as it is imported from the archive.
        function: Its name there.
        archive: SHA-256 of the archive of its modules and files.
        path: Where the archive lies in the deep store.
        files: Name → SHA-256, of ``--file``.
        params: ``--param``.
        python: The minor version, ``3.11``, with which it was submitted.
        pyspark: The version of PySpark with which it was submitted.
        shape: What it keeps of each record, as its trial found; None: it was not tried.
    """

    module: str
    function: str
    archive: str
    path: str
    files: dict[str, str] = Field(default_factory=dict)
    params: dict[str, str] = Field(default_factory=dict)
    python: str
    pyspark: str
    shape: Shape | None = None

    @property
    def state(self) -> tuple[str, ...]:
        """The operators that are known to keep state; none where it was not tried."""
        return () if self.shape is None else self.shape.state

    @property
    def hash(self) -> str:
        """What the code is known by: two codes of one hash do the same."""
        return value_hash(self.model_dump(mode="json", exclude={"path", "shape"}))

    def is_like(self, other: JobCode) -> bool:
        """Whether it does what another one does, whatever they were submitted from."""
        return self.frozen_in(other.environment).hash == other.hash

    @property
    def environment(self) -> Environment:
        """What it was submitted from."""
        return Environment(python=self.python, pyspark=self.pyspark)

    def frozen_in(self, environment: Environment) -> JobCode:
        """The same code, submitted from an environment."""
        return self.model_copy(update=environment.model_dump())

    @property
    def entry(self) -> str:
        """``module:function``."""
        return f"{self.module}:{self.function}"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a function is, as a person says it.

    Attributes:
        where: A module's name, or the path of a Python file.
    """

    where: str
    function: str

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than a module that can be imported."""
        return self.where.endswith(".py")


def parse_entry(text: str) -> Entry:
    """``module:function`` or ``file.py:function``.

    Raises:
        InvalidRequest: ``bad_entry``.
    """
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            "bad_entry",
            "this names no function",
            found=text,
            expected="module:function, or file.py:function",
            hint="for example jobs/delays.py:delay_class",
        )
    return Entry(match["module"], match["function"])


def check_params(params: Mapping[str, str]) -> None:
    """Raise where the name of a parameter is none that a function can have.

    Raises:
        InvalidRequest: ``bad_param``.
    """
    for name in params:
        if _PARAMETER.fullmatch(name) is None or name == FILES:
            raise InvalidRequest(
                "bad_param",
                "a function cannot have such a parameter",
                found=name,
                expected=f"a Python name, and not {FILES!r}, which is given the files",
            )
