"""What the commands that make versions say of a request."""

from __future__ import annotations

from anew.cli.stores.making import _said
from anew.core.stores.planning import PushOptions


def test_an_option_that_came_later_changes_no_request_of_before() -> None:
    """A request id of the release before stands for the same request, unless the new option is given."""
    assert _said(PushOptions()) == {"allow_undying": False, "target_fabrics": (), "defer_swap": False}
    assert _said(PushOptions(supersede_job=True))["supersede_job"] is True
