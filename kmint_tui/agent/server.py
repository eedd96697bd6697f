"""The MCP server over standard input and output, with the official package `mcp`, which is an
extra.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from kmint_tui import __version__
from kmint_tui.agent.bounds import bounded
from kmint_tui.agent.call import Call
from kmint_tui.agent.resources import JSON, MOST_LISTED, RECEIPTS, Content, Library
from kmint_tui.agent.tools import Tool, Toolbox
from kmint_tui.core.exit_codes import ExitCode, exit_code
from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit, KmintError

if TYPE_CHECKING:
    import mcp.types as types
    from mcp.server.context import ServerRequestContext

NAME = "kmint"
INSTRUCTIONS = """\
kmint judges Triton kernels: a strict referee that rejects wrong, dishonest or slow ones.
Work in this loop: show_operation, write the kernel, judge with `session`, explain a rejection,
repair, judge again, save.
Only `win` means that a kernel is faster than every baseline. `correct` means that it is right and
was not timed.
Claim no more than the verdict says, and name its device and its mode.
"""
QUICK_THREADS = 4


def check_installed() -> None:
    """Raises EnvironmentUnfit if the extra is not installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise EnvironmentUnfit(
            "the package `mcp` is not installed",
            title="no MCP here",
            fix="pip install 'kmint[mcp]'",
        )


def serve(toolbox: Toolbox, library: Library, stdout: IO[str], *, threads: int) -> None:
    """Serve the client at standard input until it disconnects. `stdout` is the process's own."""
    # Judgements take turns, so that a look at the history never waits for them.
    with (
        ThreadPoolExecutor(threads, "judge") as judging,
        ThreadPoolExecutor(QUICK_THREADS, "look") as looking,
    ):
        calls: set[Call] = set()
        try:
            asyncio.run(
                _served(
                    toolbox,
                    Shelf(library, looking),
                    stdout,
                    lambda tool: judging if tool.runs else looking,
                    calls,
                )
            )
        finally:
            for call in list(calls):
                call.cancel()
            judging.shutdown(wait=False, cancel_futures=True)


async def _served(
    toolbox: Toolbox,
    shelf: Shelf,
    stdout: IO[str],
    pool: Callable[[Tool], ThreadPoolExecutor],
    calls: set[Call],
) -> None:
    import mcp.types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def listed(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed_tool(tool) for tool in toolbox.tools.values()])

    async def called(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await _called(toolbox, pool, calls, context, params)

    server: Server[Any] = Server(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
        on_list_resources=shelf.listed,
        on_list_resource_templates=shelf.templates,
        on_read_resource=shelf.read,
    )
    async with contextlib.AsyncExitStack() as opened:
        with contextlib.redirect_stdout(stdout):
            # It takes over the streams, so that output of other code stays out of the protocol.
            read, write = await opened.enter_async_context(stdio_server())
        await server.run(read, write, server.create_initialization_options())


class Shelf:
    """Answers the requests for resources, in threads of `pool`."""

    def __init__(self, library: Library, pool: ThreadPoolExecutor) -> None:
        self._library, self._pool = library, pool

    async def listed(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """All of them at once: their number is bounded."""
        import mcp.types as types

        found = await asyncio.get_running_loop().run_in_executor(self._pool, self._library.listed)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=one.uri, name=one.name, description=one.description, mime_type=one.kind
                )
                for one in found
            ]
        )

    async def templates(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The address of a receipt that is not listed."""
        import mcp.types as types

        what = "The receipt at a path from the server's first folder on, or at a whole path."
        receipt = types.ResourceTemplate(
            name="receipt",
            uri_template=f"{RECEIPTS}{{+path}}",
            description=f"{what} The list names at most {MOST_LISTED}.",
            mime_type=JSON,
        )
        return types.ListResourceTemplatesResult(resource_templates=[receipt])

    async def read(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of a resource, or an error whose data is a `kmint.error/1` document."""
        import mcp.types as types
        from mcp import MCPError

        try:
            found: Content = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._library.read, params.uri
            )
        except KmintError as error:
            said = _error(int(exit_code(error)), error.title, error.message, error.fix)
            raise MCPError(types.INVALID_PARAMS, _line(said), said) from None
        except Exception as error:
            said = _fault(error)
            raise MCPError(types.INTERNAL_ERROR, _line(said), said) from None
        text = types.TextResourceContents(uri=params.uri, mime_type=found.kind, text=found.text)
        return types.ReadResourceResult(contents=[text])


async def _called(
    toolbox: Toolbox,
    pool: Callable[[Tool], ThreadPoolExecutor],
    calls: set[Call],
    context: ServerRequestContext[Any],
    params: types.CallToolRequestParams,
) -> types.CallToolResult:
    loop, steps = asyncio.get_running_loop(), 0
    reports: list[Future[None]] = []

    def report(step: str) -> None:
        nonlocal steps
        steps += 1
        reports.append(
            asyncio.run_coroutine_threadsafe(
                context.session.report_progress(float(steps), None, step), loop
            )
        )

    call = Call(report)
    calls.add(call)
    try:
        tool = toolbox.tool(params.name)
        content = await loop.run_in_executor(
            pool(tool), toolbox.call, params.name, params.arguments, call
        )
        # An answer ends its request, so a later report would name no request.
        for one in reports:
            await asyncio.wrap_future(one)
        return _result(content, failed=False)
    except KmintError as error:
        return _result(
            _error(int(exit_code(error)), error.title, error.message, error.fix), failed=True
        )
    except asyncio.CancelledError:
        call.cancel()
        raise
    except Exception as error:
        # The agent gets the error, and the server continues with its other calls.
        return _result(_fault(error), failed=True)
    finally:
        calls.discard(call)


def _fault(error: Exception) -> dict[str, Any]:
    said = f"{type(error).__name__}: {error}"
    return _error(
        int(ExitCode.INTERNAL), ExitCode.INTERNAL.meaning, said, "report it, with the call"
    )


def _line(said: dict[str, Any]) -> str:
    """A refusal in words, for clients that show no data."""
    fix = said.get("fix")
    return f"{said['title']}: {said['message']}" + (f" ({fix})" if fix else "")


def _error(code: int, title: str, message: str, fix: str) -> dict[str, Any]:
    found = {
        "schema": "kmint.error/1",
        "kmint_version": __version__,
        "code": code,
        "title": title,
        "message": message,
    }
    return bounded({**found, "fix": fix} if fix else found)


def _result(content: dict[str, Any], *, failed: bool) -> types.CallToolResult:
    import mcp.types as types

    return types.CallToolResult(
        content=[types.TextContent(type="text", text=compact(content))],
        structured_content=content,
        is_error=failed,
    )


def _listed_tool(tool: Tool) -> types.Tool:
    import mcp.types as types

    hints = types.ToolAnnotations(
        read_only_hint=tool.reads, destructive_hint=False, open_world_hint=False
    )
    return types.Tool(
        name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints
    )
