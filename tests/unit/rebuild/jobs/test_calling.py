"""What a job's function is called with, beside its frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anew.core.errors import InvalidRequest
from anew.core.jobs.code import JobCode
from anew.rebuild.jobs.archive import Unpacked
from anew.rebuild.jobs.calling import load

_MODULE = "called_function"
_CODE = """
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nowhere import Frame

def called(events: Frame, *, {parameter}) -> Frame:
    return events
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The module is imported anew in each test."""
    yield
    sys.modules.pop(_MODULE, None)


def _given(folder: Path, parameter: str, text: str) -> Any:
    (folder / f"{_MODULE}.py").write_text(_CODE.format(parameter=parameter))
    code = JobCode(
        module=_MODULE, function="called", archive="a", path="p", params={"of": text}, python="3.11", pyspark="4.2.0"
    )
    sys.path.insert(0, str(folder))
    try:
        return load(code, Unpacked(modules=folder, files={}), ["events"]).given["of"]
    finally:
        sys.path.remove(str(folder))


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("of: int", "30", 30),
        ("of: float | None = None", "0.5", 0.5),
        ("of: Optional = None", "text", "text"),
        ("of=15", "30", 30),
        ("of=True", "false", False),
        ("of=None", "30", "30"),
        ("of", "30", "30"),
    ],
)
def test_a_parameter_gets_a_value_of_its_type(tmp_path: Path, parameter: str, text: str, value: object) -> None:
    """As it is annotated, or as its default is; what is for type checkers alone does not matter."""
    found = _given(tmp_path, parameter, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("parameter", "text", "expected"),
    [
        ("of: int", "many", "int"),
        ("of=True", "perhaps", "bool"),
        ("of: list[str]", "a,b", "str, int, float or bool"),
        ("of=(1, 2)", "1,2", "str, int, float or bool"),
    ],
)
def test_a_text_that_does_not_become_one_is_refused(tmp_path: Path, parameter: str, text: str, expected: str) -> None:
    """A list would be a text, and the function wrong without a word."""
    with pytest.raises(InvalidRequest) as error:
        _given(tmp_path, parameter, text)
    assert (error.value.code, error.value.expected) == ("bad_param", expected)
