"""Whether a generation goes on after its driver ended with an error."""

from __future__ import annotations

import pytest

from anew.core.errors import AnewError, Failed, InvalidRequest, Refused, Unreachable
from anew.rebuild.jobs.driving import is_for_good


@pytest.mark.parametrize(
    "error",
    [
        Failed("log_unreachable", "a broker restarts"),
        Failed("log_full", "the disk is full"),
        Failed("written_at_out_of_range", "a clock is behind"),
        Failed("input_lost", "an end moved back for a moment"),
        Failed("build_failed", "a worker died"),
        Unreachable("controller_unreachable", "nobody answers"),
        Refused("batch_gap", "another driver was faster"),
        Refused("token_expired", "the driver's token is over"),
    ],
)
def test_what_may_pass_is_tried_again(error: AnewError) -> None:
    """Another driver follows after a pause."""
    assert not is_for_good(error)


@pytest.mark.parametrize(
    "error",
    [
        Failed("output_misfit", "a value does not fit"),
        Failed("input_unreadable", "a record is none"),
        Failed("input_expired", "records are gone"),
        InvalidRequest("function_failed", "it raises"),
        Refused("checkpoint_edited", "somebody wrote there"),
    ],
)
def test_what_would_be_so_again_is_for_good(error: AnewError) -> None:
    """The generation fails, and says why."""
    assert is_for_good(error)
