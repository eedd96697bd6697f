"""Jobs that may execute one program, and what else they try with that right. The argument is the
program's path.
"""

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

# In the sandbox this folder is on the import path; for the type checker it is a package.
if TYPE_CHECKING:
    from tests.referee.sandbox.hostile.attempt import attempt
else:
    from attempt import attempt


@attempt
def run(argument: str, scratch: str) -> object:
    done = subprocess.run([argument, "0"], capture_output=True, text=True)
    return done.returncode


@attempt
def run_shell(argument: str, scratch: str) -> object:
    return subprocess.run(["/bin/sh", "-c", "echo shell"], capture_output=True).stdout


@attempt
def run_python(argument: str, scratch: str) -> object:
    import sys

    return subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout


@attempt
def run_copy(argument: str, scratch: str) -> object:
    copy = os.path.join(scratch, "copy")
    with (
        open(argument, "rb") as source,
        open(copy, "wb", opener=lambda name, flags: os.open(name, flags, 0o755)) as target,
    ):
        shutil.copyfileobj(source, target)
    return subprocess.run([copy, "0"]).returncode


@attempt
def run_through_link(argument: str, scratch: str) -> object:
    link = os.path.join(scratch, "link")
    os.symlink("/bin/sh", link)
    return subprocess.run([link, "-c", "echo shell"], capture_output=True).stdout


def leave_running(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Start the program and return while it runs."""
    subprocess.Popen([payload.decode(), "3600"])
    return b"returned"


def leave_detached(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Start the program from a grandchild that tries to leave the session, and return while it
    runs.
    """
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            os.execv(payload.decode(), [payload.decode(), "3600"])
        os._exit(0)
    return b"returned"


def fork_bomb(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Double until refused, and stay."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(3600)
