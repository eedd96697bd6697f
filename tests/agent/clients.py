"""The official MCP client, at the other end of a real `kmint mcp`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

Steps = list[str]


@asynccontextmanager
async def connected(folder: Path | None = None, *options: str) -> AsyncIterator[Client]:
    """A client of a new server."""
    named = ["--folder", str(folder)] if folder else []
    arguments = ["-m", "kmint_tui", "mcp", *named, *options]
    async with Client(
        StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    ) as client:
        yield client


async def document(
    client: Client, tool: str, steps: Steps | None = None, **arguments: Any
) -> dict[str, Any]:
    """What a tool returns. It must be no error."""
    found = await answer(client, tool, steps, **arguments)
    assert found.get("schema") != "kmint.error/1", found
    return found


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Why a tool refuses a call. It must."""
    found = await answer(client, tool, **arguments)
    assert found["schema"] == "kmint.error/1", found
    return found


async def answer(
    client: Client, tool: str, steps: Steps | None = None, **arguments: Any
) -> dict[str, Any]:
    """The structured content of an answer, which its text says too."""

    async def said(progress: float, total: float | None, message: str | None) -> None:
        if steps is not None and message is not None:
            steps.append(message)

    result = await client.call_tool(tool, arguments, progress_callback=said)
    content = result.structured_content
    assert isinstance(content, dict) and result.is_error == (content["schema"] == "kmint.error/1")
    return content


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run the work of a test to its end."""

    async def main() -> None:
        await work()

    asyncio.run(main())
