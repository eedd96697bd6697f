"""Chat templates as strangers' programs: a limited process renders them and reports each end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.smith import Failed, Prompt, RunDone, template_process
from kmint_tui.smith.template import FENCE, TemplateRefused, render
from kmint_tui.smith.template_process import MEMORY_BYTES, SECONDS, rendered
from tests.smith.conftest import MakeSmith
from tests.tiny_models import CHATML, llama

PROMPTS = (
    Prompt("Write kernels.", "Op `probe`: nothing."),
    Prompt("S", "tl.store(y_ptr, x) é \N{GRINNING FACE}"),
)
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LARGE = "{{ 'x' * 10 ** 11 }}"
FOR_THE_REAL_PROMPT = "{%% if 'probe' not in messages[-1].content %%}%s{%% endif %%}"


def why(
    template: str, kind: type[TemplateRefused] | type[EnvironmentUnfit] = TemplateRefused
) -> str:
    """The reason for a template that gives no text."""
    with pytest.raises(kind) as refused:
        rendered(PROMPTS, template, bos="")
    return str(refused.value)


def test_the_process_gives_what_rendering_gives() -> None:
    expected = tuple(
        render(prompt, CHATML, bos="<s>", add_bos=True, prefill=FENCE) for prompt in PROMPTS
    )
    assert rendered(PROMPTS, CHATML, bos="<s>", add_bos=True, prefill=FENCE) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (ENDLESS, f"takes more than {SECONDS} s of processor time"),
        (LARGE, f"takes more than {MEMORY_BYTES >> 20} MiB of memory"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError"),
        (" " * 300_000 + "x", "characters long"),
        ("", "carries no chat template"),
        ("{% for m in messages %}<{{ m.content }}>{% endfor %}{{ 'x' * 5000000 }}", "makes 10"),
    ],
    ids=["endless", "large", "escape", "long", "none", "talkative"],
)
def test_what_is_the_templates_fault_is_told_as_its_fault(template: str, reason: str) -> None:
    assert reason in why(template)


@pytest.mark.parametrize("hostile", [ENDLESS, LARGE], ids=["endless", "large"])
def test_a_template_that_waits_for_the_real_prompt_holds_nothing(
    make_smith: MakeSmith, tmp_path: Path, hostile: str
) -> None:
    """The template behaves during the check of an import, and misbehaves in a session's prompt."""
    path = llama(
        tmp_path / "two-faced.gguf", template=FOR_THE_REAL_PROMPT % hostile + CHATML, end=-9
    )
    smith = make_smith(path)
    *_, event = smith.draft(PROMPTS[1], 2, max_tokens=5)
    assert isinstance(event, Failed) and (event.code, event.exit_code) == ("template", 4)
    assert "takes more than" in event.reason
    assert isinstance([*smith.draft(PROMPTS[0], 2, max_tokens=5)][-1], RunDone), (
        "the smith's worker is free"
    )


def test_a_slow_machine_does_not_make_a_template_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of the process takes more processor time here than the template's limit."""
    slow = f"import time\nwhile time.process_time() < {SECONDS + 0.5}: pass\n"
    monkeypatch.setattr(template_process, "_START", slow + template_process._START)
    some_work = "{% for a in range(9999) %}{% for b in range(400) %}{% endfor %}{% endfor %}"
    assert rendered(PROMPTS, some_work + CHATML, bos="") == rendered(PROMPTS, CHATML, bos="")


def test_a_broken_installation_is_not_blamed_on_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2").mkdir()
    (tmp_path / "jinja2" / "__init__.py").write_text("raise ImportError('half of it is missing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "ended with status 1; its last line: ImportError: half of it is missing" in why(
        CHATML, EnvironmentUnfit
    )


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        (
            "from referee.sandbox.limits import *; n = virtual_bytes(); set_all({resource.RLIMIT_AS: n}); 'x' * 10**8",
            "its last line: MemoryError",
        ),
        ("print('no JSON')", "gave no answer"),
        ("print('[' * 99999)", "gave no answer"),
        ("print('{}'); print('{\"texts\": [1, 2]}')", "gave no answer"),
    ],
)
def test_any_other_end_is_told_as_it_was(
    monkeypatch: pytest.MonkeyPatch, start: str, end: str
) -> None:
    monkeypatch.setattr(template_process, "_START", start)
    assert end in why(CHATML, EnvironmentUnfit)


LIMITED = """
import json, resource, sys
sys.path.append({root!r})
from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.template_process import rendered
kind, value = getattr(resource, sys.argv[1]), int(sys.argv[2])
resource.setrlimit(kind, (value, value))
try:
    rendered([Prompt("a", "b")], sys.argv[3], bos="")
except EnvironmentUnfit as unfit:
    print(unfit.message)
"""


@pytest.mark.parametrize(
    ("kind", "value", "template", "said"),
    [
        ("RLIMIT_AS", 700 << 20, "{{ 'x' * 9 ** 9 }}", "by this shell's own limits"),
        ("RLIMIT_CPU", 2, ENDLESS, "by this shell's own limits"),
    ],
    ids=["memory", "time"],
)
def test_the_users_own_limits_are_told_as_theirs(
    kind: str, value: int, template: str, said: str
) -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(root=root), kind, str(value), template],
        capture_output=True,
        text=True,
    )
    assert said in done.stdout, done.stderr
