"""The screens that show stored drafts share this part: it has a draft judged again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.message import Message

from kmint_tui import paths
from kmint_tui.core import command_line, rejudge
from kmint_tui.core.jobs import Cancelled, Job
from kmint_tui.core.reference import parse_reference
from kmint_tui.errors import KmintError
from kmint_tui.history.reading import read_history
from kmint_tui.history.records import Draft
from kmint_tui.history.store import History
from kmint_tui.screens.base import ACT, KmintScreen, key
from kmint_tui.screens.confirm import Ask
from referee.reference.asked import Asked


class RejudgingScreen(KmintScreen):
    """Subclasses name the draft in `chosen`, and show the state in `judging_changed`. One draft is
    judged at a time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        key("r", "rejudge", "Re-judge", "draft.rejudge", "Have the referee judge the draft again", ACT, show=True),
        key("x", "cancel", "Cancel", "draft.cancel", "Cancel the judging; the verdict stays as it was", ACT, show=True),
    ]  # fmt: skip

    @dataclass
    class Rejudged(Message):
        """The judging of a draft is over: with a verdict, an error, or neither when it was
        cancelled.
        """

        identity: str
        text: str
        error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self._judging: Job | None = None

    def chosen(self) -> Draft | None:
        """The draft that would be judged again."""
        raise NotImplementedError

    def judging_changed(self, title: str | None) -> None:
        """Show `title` while a draft is being judged; None means that the judging is over."""
        raise NotImplementedError

    def judged_again(self, identity: str) -> None:
        """Show the new verdict of that draft."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "rejudge":
            return self.chosen() is not None and self._judging is None
        return self._judging is not None if action == "cancel" else True

    def action_rejudge(self) -> None:
        draft = self.chosen()
        if draft is None or self._judging is not None:
            return
        try:
            self.kmint.refuse_to_disturb("judging a draft again")
        except KmintError as error:
            self.tell(error)
            return
        try:
            with read_history(paths.history_file()) as history:
                op = history.session(draft.session).op
        except KmintError as error:
            self.tell(error)
            return
        if rejudge.in_catalogue(op):
            self._begin(draft, None)
            return

        def answered(text: str | None) -> None:
            if text is not None:
                self._begin(draft, parse_reference(text))

        detail = f"{op} is no operation of the catalogue; it was minted by an own reference file."
        ask = Ask("Judge by which reference?", detail, placeholder="reference.py:function",
                  command=lambda text: command_line.command("history", "rejudge", draft.id, "--reference", text))  # fmt: skip
        self.app.push_screen(ask, answered)

    def _begin(self, draft: Draft, reference: Asked | None) -> None:
        self._judging = self.kmint.jobs.begin(f"judging draft {draft.id} again", timing=True)
        self.judging_changed(f"{draft.id} is being judged again … (x cancels)")
        self.refresh_bindings()
        self._rejudge(self._judging, draft, reference)

    @work(thread=True, exclusive=True, group="rejudge", exit_on_error=False)
    def _rejudge(self, job: Job, draft: Draft, reference: Asked | None) -> None:
        with job:
            try:
                with History(paths.history_file()) as history:
                    session = history.session(draft.session)
                verdict = rejudge.rejudge(self.kmint.engine, session, draft, job, reference)
            except Cancelled:
                message = self.Rejudged(draft.id, "")
            except Exception as error:
                if self.kmint.run_now is None:
                    # A broken referee must not judge the next draft.
                    self.kmint.engine.forget_referee()
                message = self.Rejudged(draft.id, "", None if job.cancelled else error)
            else:
                message = self.Rejudged(
                    draft.id, f"{verdict.verdict}, was {draft.outcome or 'not judged'}"
                )
        self.post_message(message)

    @on(Rejudged)
    def _rejudged(self, message: Rejudged) -> None:
        self._judging = None
        self.judging_changed(None)
        if message.error is not None:
            self.tell(message.error)
        elif message.text:
            self.app.notify(
                message.text, title=f"draft {message.identity} judged again", markup=False
            )
            self.judged_again(message.identity)
        self.refresh_bindings()

    def action_cancel(self) -> None:
        if self._judging is not None:
            self._judging.cancel()
            self.judging_changed("cancelling: the referee ends the check under way …")
