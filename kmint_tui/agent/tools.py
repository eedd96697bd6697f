"""The tools of the MCP server, without MCP: their names, their arguments, and the documents that
they return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kmint_tui import __version__
from kmint_tui.agent import records, tuning
from kmint_tui.agent.arguments import (
    Explained,
    Judged,
    Looked,
    Minted,
    Named,
    Saved,
    Search,
    Tuned,
    arguments,
    schema,
)
from kmint_tui.agent.bounds import bounded
from kmint_tui.agent.call import Call
from kmint_tui.agent.folders import Folders
from kmint_tui.agent.kernels import Desk
from kmint_tui.documents import finite
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.judge import Referee


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. `reads` marks a tool that changes nothing, `runs` one that needs the referee's
    time.
    """

    name: str
    description: str
    kind: type[Any]
    run: Callable[[Any, Call], dict[str, Any]]
    reads: bool = True
    runs: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return schema(self.kind)


class Toolbox:
    """The tools of one server. Several threads may call them at once."""

    def __init__(self, referee: Referee, folders: Folders, *, references: bool) -> None:
        desk = Desk(folders, referee, references)
        found = [
            Tool(
                name="list_operations",
                description="List the operations that kmint has a trusted reference for.",
                kind=Search,
                run=records.list_operations,
            ),
            Tool(
                name="show_operation",
                description="Show one operation: the signature of `run`, the formula, and the "
                "test cases of "
                "a verdict.",
                kind=Named,
                run=records.show_operation,
            ),
            Tool(
                name="judge",
                description="Have the referee judge a Triton kernel. A verdict of `rejected` "
                "names the guard "
                "that failed, and why.",
                kind=Judged,
                run=desk.judge,
                reads=False,
                runs=True,
            ),
            Tool(
                name="explain",
                description="Explain a verdict: the reason, the usual remedy, the failing cases, "
                "and a "
                "tested diff where there is one.",
                kind=Explained,
                run=desk.explain,
                runs=True,
            ),
            Tool(
                name="tune",
                description="Sweep block sizes, warps and stages of a kernel that passed, and "
                "judge the "
                "fastest one. It needs a GPU.",
                kind=Tuned,
                run=lambda given, call: tuning.tune(desk, referee, given, call),
                reads=False,
                runs=True,
            ),
            Tool(
                name="save",
                description="Save a draft that passed below one of the server's folders, with "
                "its receipt "
                "and its test.",
                kind=Saved,
                run=lambda given, call: records.save(desk, given, call),
                reads=False,
                runs=True,
            ),
            Tool(
                name="history",
                description="List the newest sessions, or show one session or one draft.",
                kind=Looked,
                run=records.history,
            ),
            Tool(
                name="mint",
                description="Let kmint's local model draft kernels for an operation; the referee "
                "judges and "
                "ranks them.",
                kind=Minted,
                run=lambda given, call: records.mint(desk, referee, given, call),
                reads=False,
                runs=True,
            ),
        ]
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in found}

    def tool(self, name: str) -> Tool:
        """The tool of that name. Raises UsageError."""
        if name not in self.tools:
            raise UsageError(
                f"there is no tool {name:.60}", fix=f"the tools are {', '.join(self.tools)}"
            )
        return self.tools[name]

    def call(self, name: str, given: Mapping[str, Any] | None, call: Call) -> dict[str, Any]:
        """The tool's document, within bounds. Raises KmintError, and Cancelled for a call that was
        cancelled.
        """
        tool = self.tool(name)
        content = finite(tool.run(arguments(tool.kind, given), call))
        return bounded({"schema": content["schema"], "kmint_version": __version__, **content})
