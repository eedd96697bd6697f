"""The tools that judge a kernel: `judge` and `explain`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.agent.arguments import Explained, Given, Judged, Kernel
from kmint_tui.agent.bounds import verdict_document
from kmint_tui.agent.call import Call
from kmint_tui.agent.explanation import explanation
from kmint_tui.agent.folders import Folders
from kmint_tui.core.keeping import Keeper
from kmint_tui.core.kernel_file import KernelFile, as_run, kernel_text
from kmint_tui.core.reference import parse_reference
from kmint_tui.errors import UsageError
from kmint_tui.service.work import Judging

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft, Session
    from referee.ops import Op
    from referee.problem import TaskName
    from referee.reference.asked import Asked
    from referee.verdict import Verdict


@dataclass(frozen=True)
class Desk:
    """The shared state of the tools that judge.

    A reference is code that runs as the user, so it needs `references`.
    """

    folders: Folders
    referee: Judging
    references: bool

    def judge(self, given: Judged, call: Call) -> dict[str, Any]:
        """A `kmint.verdict/1` document, with the draft's id if the kernel is kept."""
        kernel, op, task = self.wanted(given)
        keeper = Keeper(given.session, given.level) if given.session is not None else None
        draft = keeper.before(kernel.source, op.name, task) if keeper else None
        verdict = self.verdict(kernel.source, task, given, call)
        kept = keeper.after(draft, verdict) if keeper and draft else None
        found = {"draft": kept.draft, "best": kept.best} if kept else {}
        return {**found, **verdict_document(verdict.to_json()), "notes": list(kernel.notes)}

    def explain(self, given: Explained, call: Call) -> dict[str, Any]:
        """A `kmint.explanation/1` document."""
        from referee.ops import signature

        if given.draft is not None:
            source, op, task, verdict = self._of_history(given, call)
        else:
            kernel, op, task = self.wanted(given)
            source, verdict = (
                kernel.source,
                self.verdict(kernel.source, task, given, call).to_json(),
            )

        def again(edited: str) -> Verdict:
            return self.verdict(edited, task, replace(given, level="correct"), call)

        names = op.arguments or tuple(signature(op))
        return explanation(verdict, source, names, again if given.edit else None)

    def verdict(self, source: str, task: str | TaskName, given: Kernel, call: Call) -> Verdict:
        """The referee's verdict. Raises Cancelled, or EnvironmentUnfit if it cannot work."""
        from kmint_tui.core.referee import check_target, unfit

        call.check()
        verdict = self.referee.judge(
            source,
            task,
            level=given.level,
            target=check_target(given.target),
            strict=True,
            tell=call.tell,
            count=call.count,
        )
        # A judgement that a cancelled call ended looks like a failure of the referee.
        call.check()
        if verdict.verdict == "error":
            raise unfit(verdict)
        return verdict

    def reference(
        self, text: str | None, inputs: tuple[str, ...] = (), fixed: tuple[str, ...] = ()
    ) -> Asked | None:
        """The reference of that name, its file below the folders. Raises UsageError."""
        from referee.reference.asked import split_reference

        if text is None:
            return parse_reference(None, inputs, fixed)
        if not self.references:
            fix = (
                "the user allows it with `kmint mcp --allow-references`; else judge by an "
                "operation (`op`)"
            )
            raise UsageError(
                "a reference is code that runs as the user, outside the sandbox, and this server "
                "runs none",
                fix=fix,
            )
        if recorded := [one for one in inputs if one.startswith("@")]:
            raise UsageError(
                f"{recorded[0]} names a file", fix="write the inputs out, as in 'x=bf16[B,4096]'"
            )
        file, function = split_reference(text)
        return parse_reference(
            f"{self.folders.inside(str(file))}" + (f":{function}" if function else ""),
            inputs,
            fixed,
        )

    def wanted(self, given: Given) -> tuple[KernelFile, Op, str | TaskName]:
        """The kernel to judge, and its operation or reference. Raises KmintError."""
        from kmint_tui.core.task import wanted_task

        if (given.source is None) == (given.file is None):
            raise UsageError(
                "give the kernel as `source` or as `file`, and not both", title="which kernel?"
            )
        if given.source is not None:
            name, text = (
                "source",
                kernel_text(given.source.encode("utf-8", "surrogatepass"), "source"),
            )
        else:
            assert given.file is not None
            name, text = given.file, self.folders.kernel(given.file)
        reference = self.reference(given.reference, given.inputs, given.fixed)
        op, task = wanted_task(given.op, reference)
        return as_run(KernelFile(name, text, given.op), op, reference), op, task

    def _of_history(
        self, given: Explained, call: Call
    ) -> tuple[str, Op, str | TaskName, dict[str, Any]]:
        """A draft of the history with its verdict; a draft without one is judged."""
        assert given.draft is not None
        draft, op, task = self.of_history(given.draft, given.reference)
        if draft.verdict is not None:
            return draft.source, op, task, dict(draft.verdict)
        return draft.source, op, task, self.verdict(draft.source, task, given, call).to_json()

    def of_history(self, wanted: str, named: str | None) -> tuple[Draft, Op, str | TaskName]:
        """A draft of the history, and its operation or reference. Raises KmintError."""
        from kmint_tui.core.task import wanted_task
        from kmint_tui.minting.request import inputs_of
        from kmint_tui.save.saving import check_needs_no_reference

        session, draft = stored(wanted)
        reference = self.reference(named)
        if reference is None:
            check_needs_no_reference(session, draft)
        else:
            reference = reference.remembering(*inputs_of(session))
        op, task = wanted_task(None if reference else session.op, reference)
        return draft, op, task


def stored(wanted: str) -> tuple[Session, Draft]:
    """A draft of the history, and its session. Raises UsageError."""
    from kmint_tui.history.reading import read_history
    from kmint_tui.history.records import parse_id

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(
            f"{wanted} is a session; name one of its drafts", fix=f"for example {wanted}.0"
        )
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`judge` with `session` keeps a kernel there")
    with read_history(paths.history_file()) as history:
        draft = history.draft(where.session, where.number)
        if draft.duplicate_of is not None:
            draft = history.draft(where.session, draft.duplicate_of)
        return history.session(where.session), draft
