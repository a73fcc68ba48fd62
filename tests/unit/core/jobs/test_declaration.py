"""What a job says of itself where its function is written."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import anew
from anew.core.errors import InvalidRequest
from anew.core.jobs.declaration import Declaration, Input, declaration_of, job, start_named
from anew.core.jobs.inputs import Start

_WHOLE = Declaration(
    inputs={"flights": Input(topic="flight_events", start=Start.NEWEST)},
    output="store:delays",
    max_lateness_ms=7_200_000,
)


def test_a_function_says_which_job_it_is_of_and_stays_as_it_is() -> None:
    """The decorator leaves a mark that wrappers of the function carry on; a plain function declares nothing."""

    @anew.job(
        inputs={"flights": anew.Input(topic="flight_events", start=Start.NEWEST)},
        output="store:delays",
        max_lateness="2h",
    )
    def classify(flights: Any) -> Any:
        return flights

    @functools.wraps(classify)
    def wrapped(flights: Any) -> Any:
        return classify(flights)

    assert (classify(7), classify.__name__) == (7, "classify")
    assert declaration_of(classify) == declaration_of(wrapped) == _WHOLE
    assert declaration_of(lambda: None) == declaration_of(None) == Declaration()
    assert declaration_of(job(inputs={"a": "b"})(lambda a: a)).inputs == {"a": Input(topic="b")}


def test_what_is_left_open_may_be_added_and_nothing_contradicted() -> None:
    """Both say what the job is; of what both say, both have to say the same."""
    said = Declaration(inputs={"weather": Input(topic="w")})
    assert _WHOLE.joined(said, "f") == _WHOLE.model_copy(update={"inputs": {**_WHOLE.inputs, **said.inputs}})
    start = Declaration(inputs={"flights": Input(start=Start.NEWEST)})
    assert _WHOLE.joined(start, "f") == start.joined(_WHOLE, "f") == _WHOLE
    again = Declaration(inputs={"flights": Input(topic="flight_events")}, output="store:delays")
    assert _WHOLE.joined(again, "f") == again.joined(_WHOLE, "f") == _WHOLE
    others = [
        Declaration(inputs={"flights": Input(topic="other")}),
        Declaration(inputs={"flights": Input(topic="flight_events", start=Start.OLDEST)}),
        Declaration(output="topic:delays"),
        Declaration(max_lateness_ms=1),
    ]
    for other in others:
        with pytest.raises(InvalidRequest, match="f declares") as caught:
            _WHOLE.joined(other, "f")
        assert caught.value.code == "declared_otherwise"


def test_a_job_is_what_its_function_declares() -> None:
    """What is not declared is free; a default start that nobody named is the oldest record."""
    plain = Declaration(inputs={"flights": Input(topic="flight_events")}, output="store:delays")
    Declaration().check_of(plain, "f")
    Declaration(inputs={"flights": Input(topic="flight_events", start=Start.OLDEST)}).check_of(plain, "f")
    _WHOLE.check_of(_WHOLE, "f")
    for declared in (
        _WHOLE,
        Declaration(inputs={"weather": Input(topic="flight_events")}),
        Declaration(inputs={"flights": Input(topic="flight_events", start=Start.FAIL)}),
        Declaration(output="store:other"),
        Declaration(max_lateness_ms=0),
    ):
        with pytest.raises(InvalidRequest, match="declares"):
            declared.check_of(plain, "f")


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 hours", "99999999999999999w"])
def test_a_lateness_is_a_duration(text: str) -> None:
    """It is refused where it is declared."""
    with pytest.raises(InvalidRequest, match="no duration"):
        job(max_lateness=text)


def test_a_default_start_is_one_of_three_words() -> None:
    """Offsets and times belong to a plan."""
    assert [start_named(each) for each in ("oldest", "newest", "fail")] == list(Start)
    with pytest.raises(InvalidRequest, match="no default start"):
        start_named("2013-12-03T12:00Z")
