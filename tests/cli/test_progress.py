"""What a running session shows of itself, on a terminal and elsewhere, and in the interface."""

from __future__ import annotations

import pytest

from kmint_tui.cli.progress import MintProgress
from kmint_tui.cli.streams import Diagnostics
from kmint_tui.core.session_state import LiveSession
from kmint_tui.events import CasesDone, Judging

EVENTS = (Judging(3), CasesDone(3, 57, 128))


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_shows_how_far_the_referee_is(
    capsys: pytest.CaptureFixture[str], live: bool
) -> None:
    """A count in the live block; nothing where lines cannot be taken back."""
    progress = MintProgress(Diagnostics(live=live))
    for event in EVENTS:
        progress.show(event)
    progress.show(Judging(4))
    shown = capsys.readouterr()
    assert ("being judged, 57 of 128 cases" in shown.err) is live
    assert shown.out == ""


def test_the_interface_knows_how_far_the_referee_is() -> None:
    """The line of a draft says how many cases are done, once there is a count."""
    session = LiveSession()
    session.apply(EVENTS[:1])
    assert session.drafts[3].why == "being judged"
    assert session.apply(EVENTS[1:]) == {3}
    assert session.drafts[3].why == "being judged, 57 of 128 cases"
