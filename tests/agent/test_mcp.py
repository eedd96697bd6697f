"""`kmint mcp`, driven by the official client: every tool, cancelled calls, killed servers, hostile
arguments.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from kmint_tui.agent.bounds import MOST_BYTES
from tests.agent.clients import answer, connected, document, refusal, run
from tests.agent.kernels import GOOD, WRONG
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.cli.test_judge import DOUBLE, REFERENCE
from tests.processes import living, processes_below, still_living

TOOLS = [
    "list_operations",
    "show_operation",
    "judge",
    "explain",
    "tune",
    "save",
    "history",
    "mint",
]


def test_every_tool_answers_with_its_document(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")

    async def work() -> None:
        async with connected(tmp_path) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == TOOLS
            assert all(tool.input_schema["additionalProperties"] is False for tool in listed)
            found = await document(client, "list_operations", search="softmax")
            assert "softmax" in [op["name"] for op in found["ops"]]
            shown = await document(client, "show_operation", op="softmax")
            assert (shown["schema"], shown["signature"][:4]) == ("kmint.op/1", "run(")
            steps: list[str] = []
            wrong = await document(
                client, "judge", steps, source=WRONG, op="softmax", session="one"
            )
            assert (wrong["schema"], wrong["verdict"], wrong["draft"]) == (
                "kmint.verdict/1",
                "rejected",
                "1.0",
            )
            assert "reading the kernel" in steps
            why = await document(client, "explain", draft="1.0", edit=False)
            assert (why["schema"], why["guard"], why["diff"]) == (
                "kmint.explanation/1",
                "wrong_answer",
                None,
            )
            assert why["remedy"] and why["cases"][0]["status"] == "fail"
            good = await document(client, "judge", file="softmax.py", op="softmax", session="one")
            assert (good["verdict"], good["draft"], good["best"]) == ("correct", "1.1", "1.1")
            assert {cell["role"] for cell in good["cells"]} <= {"capability"} and good[
                "cells_left_out"
            ] > 100
            session = await document(client, "history", id="1")
            assert [draft["outcome"] for draft in session["drafts"]] == ["rejected", "correct"]
            assert (await document(client, "history", id="1.1"))["source"] == GOOD
            assert len((await document(client, "history"))["sessions"]) == 1
            saved = await document(client, "save", draft="1.1", folder="out")
            assert (tmp_path / "out" / "softmax.py") in [Path(file) for file in saved["files"]]
            assert all(Path(file).exists() for file in saved["files"])

    run(work)


def test_mint_drafts_with_the_embedded_smith() -> None:
    async def work() -> None:
        async with connected() as client:
            steps: list[str] = []
            found = await document(client, "mint", steps, op="softmax", drafts=1, seed=1)
            assert (found["schema"], len(found["drafts"]) >= 1) == ("kmint.mint/1", True)
            assert "draft 0 is written" in steps
            assert (await document(client, "history", id=found["history_id"]))[
                "model"
            ] == "embedded"

    run(work)


def test_a_reference_needs_the_users_leave(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    kernel: dict[str, Any] = {"source": DOUBLE, "reference": "reference.py:double"}

    async def work() -> None:
        async with connected(tmp_path) as client:
            assert "--allow-references" in (await refusal(client, "judge", **kernel))["fix"]
        async with connected(tmp_path, "--allow-references") as client:
            assert (await document(client, "judge", **kernel))["verdict"] == "correct"
            outside = await refusal(
                client, "judge", source=DOUBLE, reference="../reference.py:double"
            )
            assert "outside" in outside["title"]
            assert (
                "names a file"
                in (await refusal(client, "judge", **kernel, inputs=["@/etc/passwd"]))["message"]
            )

    run(work)


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("judge", {"file": "../../etc/passwd", "op": "softmax"}, "outside the folders"),
    ("judge", {"file": "/etc/passwd", "op": "softmax"}, "outside the folders"),
    ("judge", {"file": "link.py", "op": "softmax"}, "outside the folders"),
    ("judge", {"file": "pipe", "op": "softmax"}, "no regular file"),
    ("judge", {"file": "none.py", "op": "softmax"}, "cannot be read"),
    ("judge", {"file": ".", "op": "softmax"}, "cannot be read"),
    ("judge", {"file": "a\0b", "op": "softmax"}, "null byte"),
    ("judge", {"source": "x" * 10_000_000, "op": "softmax"}, "longer than"),
    ("judge", {"source": "", "op": "softmax"}, "empty"),
    ("judge", {"source": GOOD, "op": "sofmax"}, "no operation is called"),
    ("judge", {"source": GOOD}, "name an operation"),
    ("judge", {"op": "softmax"}, "`source` or as `file`"),
    ("judge", {"source": GOOD, "file": "a", "op": "softmax"}, "not both"),
    ("judge", {"source": GOOD, "op": "softmax", "level": "all"}, "level must be one of"),
    ("judge", {"source": GOOD, "op": "softmax", "target": "sm_1"}, "sm_90"),
    ("judge", {"source": GOOD, "op": "softmax", "session": "a\nb"}, "cannot name a session"),
    (
        "judge",
        {"source": GOOD, "op": "softmax", "level": "screen", "session": "a"},
        "--level screen",
    ),
    ("judge", {"source": 5, "op": "softmax"}, "source must be text"),
    ("judge", {"source": GOOD, "op": "softmax", "seed": 1}, "no argument seed"),
    ("explain", {"draft": "9.9"}, "the history is empty"),
    ("explain", {"draft": "9"}, "is a session"),
    ("save", {"draft": "9.9", "folder": "/tmp"}, "outside the folders"),
    ("save", {"draft": "9.9", "folder": "linked"}, "outside the folders"),
    ("save", {"draft": "9.9"}, "lacks 'folder'"),
    ("history", {"id": "x"}, "not an id of the history"),
    ("history", {"limit": 10**9}, "limit is 1 to"),
    ("mint", {"op": "softmax", "drafts": 1000}, "drafts are 1 to"),
    ("mint", {"op": "softmax", "model": "http://127.0.0.1:1"}, "another machine"),
    ("mint", {"op": "softmax", "model": "/etc/passwd"}, "outside the folders"),
    ("mint", {"op": "softmax", "model": "none.gguf"}, "none.gguf"),
    ("show_operation", {"op": "\x1b[1m"}, "no operation is called"),
    ("fly", {}, "there is no tool fly"),
]


def test_hostile_arguments_are_refused_and_the_server_lives(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.py").write_text(GOOD, encoding="utf-8")
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "linked").symlink_to(outside)
    os.mkfifo(inside / "pipe")

    async def work() -> None:
        async with connected(inside) as client:
            for tool, arguments, words in HOSTILE:
                found = await refusal(client, tool, **arguments)
                said = f"{found['title']}: {found['message']} {found.get('fix', '')}"
                assert words in said, (tool, list(arguments), said)
                assert found["code"] in (2, 3, 4) and len(json.dumps(found)) < 2000
            assert (await document(client, "judge", source=GOOD, op="softmax", level="screen"))[
                "verdict"
            ] == "unsure"

    run(work)
    assert list(outside.iterdir()) == [outside / "secret.py"]


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_operations", {}),
    ("show_operation", {"op": "softmax"}),
    ("history", {}),
]


def test_without_a_folder_no_file_is_read() -> None:
    async def work() -> None:
        async with connected() as client:
            assert (
                "--folder"
                in (await refusal(client, "judge", file="/etc/passwd", op="softmax"))["fix"]
            )

    run(work)


def test_no_answer_is_long() -> None:
    async def work() -> None:
        async with connected() as client:
            for tool, arguments in CALLS:
                found = await answer(client, tool, **arguments)
                assert (
                    len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())
                    <= MOST_BYTES
                )

    run(work)


def test_a_cancelled_call_ends_and_loses_nothing() -> None:
    async def work() -> None:
        async with connected() as client:
            await _cancelled(client)
            session = await document(client, "history", id="1")
            assert [draft["why"] for draft in session["drafts"]] == ["not judged"]
            again = await document(client, "judge", source=GOOD, op="softmax", session="cancelled")
            assert (again["draft"], again["verdict"]) == ("1.0", "correct")

    run(work)


async def _cancelled(client: Client) -> None:
    """Give up a judgement as soon as it has begun."""
    begun = asyncio.Event()

    async def begin(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    arguments = {"source": GOOD, "op": "softmax", "session": "cancelled"}
    call = asyncio.create_task(client.call_tool("judge", arguments, progress_callback=begin))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_a_killed_server_leaves_the_draft_and_no_process() -> None:
    before = processes_below(os.getpid())

    async def work() -> None:
        below: set[int] = set()
        async with connected() as client:
            begun = asyncio.Event()

            async def begin(progress: float, total: float | None, message: str | None) -> None:
                begun.set()

            arguments = {"source": GOOD, "op": "softmax", "session": "killed"}
            call = asyncio.create_task(
                client.call_tool("judge", arguments, progress_callback=begin)
            )
            await begun.wait()
            (server,) = [pid for pid in processes_below(os.getpid()) - before if _is_server(pid)]
            below |= processes_below(server)
            os.kill(server, signal.SIGKILL)
            with pytest.raises(MCPError, match="Connection closed"):
                await call
        while below & living():
            await asyncio.sleep(0)
        async with connected() as client:
            assert (await document(client, "history", id="1.0"))["source"] == GOOD

    run(work)


def _is_server(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"kmint_tui" in words and b"mcp" in words


def test_two_clients_at_once_share_the_history() -> None:
    async def work() -> None:
        async with connected() as first, connected() as second:
            found = await asyncio.gather(
                document(first, "judge", source=GOOD, op="softmax", session="both"),
                document(second, "judge", source=WRONG, op="softmax", session="both"),
            )
            assert [one["verdict"] for one in found] == ["correct", "rejected"]
            assert {one["draft"] for one in found} == {"1.0", "1.1"}
            assert (await document(first, "history", id="1"))["wanted"] == 2

    run(work)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (None, 0)]
)
def test_a_server_ends_with_its_client_or_by_a_signal(
    number: signal.Signals | None, code: int
) -> None:
    command = [sys.executable, "-m", "kmint_tui", "mcp"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).encode()
        + b"\n"
    )
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "kmint"
    below = processes_below(process.pid)
    if number is None:
        process.stdin.close()
    else:
        process.send_signal(number)
    assert process.wait() == code
    process.stdout.close()
    assert process.stderr is not None and b"Traceback" not in process.stderr.read()
    process.stderr.close()
    if number is not None:
        process.stdin.close()
    # A worker that was killed while it started takes its own children with it, a moment later.
    assert not still_living(below)


def test_without_the_extra_the_command_says_how_to_get_it() -> None:
    code = (
        "import sys; import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'mcp' else find(name)\n"
        "from kmint_tui.cli.main import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "kmint[mcp]" in done.stderr


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    refused(kmint("mcp", "--folder", str(tmp_path / "none")), 2, "is not a folder")
