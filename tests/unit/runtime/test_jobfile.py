"""Jobs that are declared by a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from anew.core.errors import AnewError
from anew.core.jobs.declaration import Declaration, Input
from anew.core.jobs.inputs import Start
from anew.runtime.jobfile import code_in_file
from anew.runtime.jobplans import param_text

_WHOLE = """
function = "code/delays.py:classify"
output = "store:delays"
max_lateness = "2h"

[inputs]
flights = "flight_events"
weather = { topic = "weather_events", start = "newest" }

[params]
severe = 30
share = 0.5
strict = true
name = "a"

[files]
"model.bin" = "models/model.bin"
"""


def test_a_file_says_all_of_a_job(tmp_path: Path) -> None:
    """Paths are relative to its folder; parameters are as a command line has them; what is given besides wins."""
    path = tmp_path / "job.toml"
    path.write_text(_WHOLE)
    code = code_in_file(path, {}, {}, trial=False)
    assert (code.entry, code.trial) == (f"{tmp_path}/code/delays.py:classify", False)
    assert code.params == {"severe": 30, "share": 0.5, "strict": True, "name": "a"}
    assert [param_text(value) for value in code.params.values()] == ["30", "0.5", "true", "a"]
    assert code.files == {"model.bin": tmp_path / "models/model.bin"}
    inputs = {"flights": Input(topic="flight_events"), "weather": Input(topic="weather_events", start=Start.NEWEST)}
    assert code.declared == Declaration(inputs=inputs, output="store:delays", max_lateness_ms=7_200_000)
    other = tmp_path / "other.bin"
    given = code_in_file(path, {"model.bin": other}, {"severe": "45"}, trial=True)
    assert (given.files["model.bin"], given.params["severe"], given.params["name"]) == (other, "45", "a")


def test_a_module_in_a_file_is_a_module(tmp_path: Path) -> None:
    """Of the environment, not of the folder; nothing else has to be said."""
    path = tmp_path / "job.toml"
    path.write_text('function = "jobs.delays:classify"')
    code = code_in_file(path, {}, {}, trial=True)
    assert (code.entry, code.declared) == ("jobs.delays:classify", Declaration())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "function: it is missing"),
        ("function = ", "Invalid value"),
        ('function = "f.py:g"\noutputs = "store:a"', "outputs: there is no such key"),
        ('function = "f.py:g"\n[inputs]\na = { topic = "t", begin = 3 }', "inputs.a.begin: there is no such key"),
        ('function = "f.py:g"\n[inputs]\na = { topic = "t", start = "3" }', "3"),
        ('function = "f.py:g"\nmax_lateness = "long"', "long"),
        ('function = "f.py:g"\n[params]\na = [1]', "params.a"),
        ('function = "f.py"', "f.py"),
    ],
)
def test_a_file_that_declares_no_job_is_refused(tmp_path: Path, text: str, found: str) -> None:
    """With what is wrong in it."""
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(AnewError) as caught:
        code_in_file(path, {}, {}, trial=True)
    assert found in str(caught.value.found), caught.value
    assert caught.value.code in ("bad_declaration", "bad_entry")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """As one that is no text."""
    with pytest.raises(AnewError, match="cannot be read"):
        code_in_file(tmp_path / "none.toml", {}, {}, trial=True)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(AnewError, match="cannot be read"):
        code_in_file(tmp_path / "bytes.toml", {}, {}, trial=True)
