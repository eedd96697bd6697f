"""The fork server's memory in huge pages, and that jobs are as before meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from referee.sandbox.worker import HugePages

FILLED = """
import ctypes, json, mmap, re
from referee.sandbox.worker import HugePages
from referee.sandbox.linux import call

SIZE = 16 << 20
pages = HugePages()
held = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.write(b"kmint" * (SIZE // 5))


def huge():
    return sum(map(int, re.findall(r"AnonHugePages:\\s+(\\d+) kB", open("/proc/self/smaps").read())))


before, steps = huge(), 0
pages.again()
while pages.pending:
    pages.step()
    steps += 1
kept = held[:] == b"kmint" * (SIZE // 5) + bytes(SIZE % 5)
address = ctypes.addressof(ctypes.c_char.from_buffer(held))
try:
    call("madvise", ctypes.c_void_p(-(-address // (2 << 20)) * (2 << 20)), ctypes.c_size_t(2 << 20), 25)
    refused = ""
except OSError as error:
    refused = str(error)
print(json.dumps({"more": huge() - before, "steps": steps, "kept": kept, "refused": refused}))
"""


def test_what_a_process_has_filled_comes_into_huge_pages() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FILLED], capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout)
    assert found["kept"] and found["steps"] >= 7
    if found["refused"]:
        pytest.skip(f"this kernel makes no huge pages when asked: {found['refused']}")
    assert found["more"] >= 12 << 10


def test_without_proc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr("os.open", none)
    pages = HugePages()
    pages.again()
    assert not pages.pending
