"""Renders prompts with a model file's chat template in a separate process.

The template is a stranger's program. jinja2's sandbox keeps it from the system, but not from
endless loops or from filling the memory. So the process is limited, may read the installation
alone, and answers with text only. `main` is that process: a request on stdin, two lines on stdout.
The limits count the template alone; the start of the process may take seconds on a slow machine.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Any

from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.smith.template import MAX_TEMPLATE, Prompt, TemplateRefused, render, too_long
from referee import python_child

SECONDS, WALL_SECONDS, MEMORY_BYTES = 3, 120, 1 << 30
MOST_CHARACTERS = 4 << 20
# JSON takes up to 12 bytes for a character.
ANSWER_BYTES = 64 << 20
_START = "from kmint_tui.smith.template_process import main; main()"
_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR")
_FIX = "`kmint doctor` checks this machine and installation"
_WORDS = 300


def rendered(
    prompts: Sequence[Prompt], template: str, *, bos: str, add_bos: bool = False, prefill: str = ""
) -> tuple[str, ...]:
    """The text of each prompt, as `template.render` gives it.

    Raises TemplateRefused for a fault of the template, limits included, and EnvironmentUnfit for
    any other end of the process.
    """
    if len(template) > MAX_TEMPLATE:
        raise too_long(template)
    request = {
        "prompts": [asdict(prompt) for prompt in prompts],
        "template": template,
        "bos": bos,
        "add_bos": add_bos,
        "prefill": prefill,
    }
    with (
        tempfile.TemporaryFile() as question,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as words,
    ):
        question.write(json.dumps(request).encode())
        question.seek(0)
        try:
            ended = subprocess.run(
                python_child.command(_START),
                cwd=python_child.WORKING_FOLDER,
                env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
                stdin=question,
                stdout=answer,
                stderr=words,
                timeout=WALL_SECONDS,
                start_new_session=True,
            ).returncode
        except subprocess.TimeoutExpired:
            raise _untried(
                f"was not done after {WALL_SECONDS} s, and spent most of the time waiting"
            ) from None
        except OSError as error:
            raise _untried(f"cannot be started: {error.strerror or error}") from error
        return _texts(_lines(answer), len(prompts), ended, _last_line(words))


def _texts(lines: list[Any], wanted: int, ended: int, words: str) -> tuple[str, ...]:
    """The texts; raises the error that fits the process's end."""
    granted = lines[0] if lines and isinstance(lines[0], dict) else {}
    reply = lines[1] if len(lines) > 1 and isinstance(lines[1], dict) else {}
    if granted and reply.get("limit"):
        raise _over_limit(granted, "memory")
    # The kernel sends SIGKILL at once where the user's limit is lower.
    if granted and (
        ended == -signal.SIGXCPU or (ended == -signal.SIGKILL and granted.get("seconds") != SECONDS)
    ):
        raise _over_limit(granted, "seconds")
    if isinstance(refused := reply.get("refused"), str):
        raise TemplateRefused(refused)
    texts = reply.get("texts")
    if (
        ended == 0
        and isinstance(texts, list)
        and len(texts) == wanted
        and all(isinstance(text, str) for text in texts)
    ):
        return tuple(texts)
    if ended < 0:
        hint = (
            "; the system kills processes when memory runs out" if ended == -signal.SIGKILL else ""
        )
        raise _untried(f"was ended by {_name(-ended)}{hint}", words)
    raise _untried(f"ended with status {ended}" if ended else "gave no answer", words)


def _over_limit(granted: dict[str, Any], kind: str) -> TemplateRefused | EnvironmentUnfit:
    """The template's fault, unless the user's own limit is lower."""
    ours = {"seconds": SECONDS, "memory": MEMORY_BYTES}[kind]
    given = granted.get(kind)
    given = given if isinstance(given, int) and given < ours else ours
    amount = f"{given} s of processor time" if kind == "seconds" else f"{given >> 20} MiB of memory"
    if given < ours:
        return _untried(
            f"has only {amount} by this shell's own limits (`ulimit -a`), and needed more"
        )
    return TemplateRefused(f"the chat template fails: it takes more than {amount}")


def _untried(end: str, words: str = "") -> EnvironmentUnfit:
    last_line = f"; its last line: {words}" if words else ""
    return EnvironmentUnfit(
        f"the chat template could not be tried: the process that renders it {end}{last_line}",
        fix=_FIX,
    )


def _lines(answer: IO[bytes]) -> list[Any]:
    size = min(answer.seek(0, os.SEEK_END), ANSWER_BYTES)
    answer.seek(0)
    try:
        return [json.loads(line) for line in answer.read(size).splitlines()]
    except (ValueError, RecursionError):
        return []


def _last_line(words: IO[bytes]) -> str:
    """The last line that the process printed, where an exception appears."""
    words.seek(max(0, words.seek(0, os.SEEK_END) - (1 << 14)))
    lines = words.read().decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[:_WORDS] if lines else ""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> None:
    """Read the request, apply limits and layers, render, and write the limits and the result."""
    # These imports of `render` must not count against the limits.
    import jinja2.ext  # noqa: F401
    import jinja2.sandbox  # noqa: F401

    import kmint_tui.smith.generation_block  # noqa: F401
    from referee.sandbox import file_view
    from referee.sandbox.confinement import Rights, confine

    request = json.loads(sys.stdin.buffer.read())
    prompts = [Prompt(**prompt) for prompt in request.pop("prompts")]
    granted = _granted()
    _, readable = file_view.locate(("kmint_tui", "jinja2"))
    confine(
        Rights(
            readable=tuple(readable),
            memory_bytes=MEMORY_BYTES,
            processor_seconds=SECONDS,
            file_bytes=ANSWER_BYTES,
        )
    )
    _send(granted)
    answer: dict[str, object]
    try:
        texts = [render(prompt, **request) for prompt in prompts]
        answer = {"texts": texts}
        if (length := sum(map(len, texts))) > MOST_CHARACTERS:
            answer = {"refused": f"the chat template makes {length} characters of the prompts"}
    except TemplateRefused as refused:
        answer = {"refused": refused.reason}
    except MemoryError:
        answer = {"limit": "memory"}
    _send(answer)


def _granted() -> dict[str, int]:
    """Processor seconds and bytes of memory for the template, within the user's own limits."""
    from referee.sandbox import limits

    granted = {"seconds": SECONDS, "memory": MEMORY_BYTES}
    seconds, memory = (
        resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS)
    )
    if seconds != resource.RLIM_INFINITY:
        granted["seconds"] = min(SECONDS, seconds - limits.seconds_used())
    if memory != resource.RLIM_INFINITY and sys.platform == "linux":
        granted["memory"] = min(MEMORY_BYTES, memory - limits.virtual_bytes())
    return granted


def _send(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
