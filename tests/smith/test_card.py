"""Cards as prompts: kmint's own test cards, and the public ones if `shared/cards` exists."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from kmint_tui.smith.card import CardUnreadable, read_card
from kmint_tui.smith.exemplars import DIALECTS, exemplar_source
from kmint_tui.smith.prompts import build, compose
from kmint_tui.smith.template import render
from referee import ops
from tests.smith.test_template import MINICPM5

CARDS = Path(__file__).resolve().parents[2].parent / "shared" / "cards"
EXAMPLE = textwrap.dedent(
    """\
    @triton.jit
    def _scale_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
        cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + cols, tl.load(x_ptr + cols) * 2)

    def run(x):
        return x"""
)
CODE = f"""import torch
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("someone/smith")
SYSTEM = ("Write kernels. "
          "Only code.")
STYLE = \'\'\'{EXAMPLE}\'\'\'
USER = (
    "Op `relu`: the larger of x and 0.\\n"
    "Signature:\\n    run(x: Tensor[M, N]) -> Tensor[M, N]\\n\\n"
    "A kernel for another op (`scale`):\\n"
    f"```python\\n{{STYLE}}\\n```\\n"
)
messages = [{{"role": "system", "content": SYSTEM}}, {{"role": "user", "content": USER}}]
prompt = tok.apply_chat_template(messages, tokenize=False)
"""
FENCED = f"# A smith\n\nIt writes kernels.\n\n```bash\npip install x\n```\n\n```python\n{CODE}```\n\nThe end of it.\n"
BARE = f"A smith\n\nIt writes kernels.\n\n{CODE}\nThe end of it, in words that are no code.\n"


@pytest.mark.parametrize(
    "text", [FENCED, BARE, FENCED.replace("\n", "\r\n")], ids=["fenced", "bare", "crlf"]
)
def test_a_card_gives_its_words(text: str) -> None:
    card = read_card(text)
    assert (card.system, card.own_op, card.example_op) == (
        "Write kernels. Only code.",
        "relu",
        "scale",
    )
    assert card.example == EXAMPLE + "\n"
    assert card.build("relu", "", "").user.startswith(
        "Op `relu`: the larger of x and 0.\nSignature:\n    run(x: Tensor[M, N])"
    )


def test_another_operation_goes_into_the_same_places() -> None:
    user = (
        read_card(FENCED)
        .build("gelu", "run(x: Tensor[M, N],\n    w: Tensor[N])", "gelu of\n x")
        .user
    )
    assert user == (
        "Op `gelu`: gelu of x\nSignature:\n    run(x: Tensor[M, N],\n        w: Tensor[N])\n\n"
        f"A kernel for another op (`scale`):\n```python\n{EXAMPLE}\n```\n"
    )


def test_an_example_is_never_the_answer() -> None:
    """A card has one example, so its own operation gets kmint's example."""
    card = read_card(FENCED.replace("`scale`", "`rmsnorm`"))
    user = card.build("rmsnorm", "run(x)", "the norm").user
    assert "another op (`softmax`)" in user and exemplar_source("softmax", "card") in user
    assert "_scale_kernel" not in user


def test_prompts_are_in_the_words_of_the_card() -> None:
    card, op = read_card(FENCED), ops.get("add_rmsnorm_gelu")
    for dialect in DIALECTS:
        prompt = build(op, dialect, "too slow", card)
        assert prompt.system == card.system
        assert prompt.user.startswith("Op `add_rmsnorm_gelu`: ") and EXAMPLE in prompt.user
        assert prompt.user.endswith("feedback: too slow\nFix it and make it faster.")
    assert compose("gelu", "  run(x)", "d", "card", card=card) == card.build("gelu", "run(x)", "d")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (CODE, "pip install smith\n", "no Python code|no list of messages"),
        ('"content": USER', '"content": make(USER)', "builds no list of messages"),
        ("{STYLE}", "{STYLE!r}", "builds no list of messages"),
        ("Op `relu`: ", "relu ", "names no operation"),
        ("run(x: Tensor", "kernel(x: Tensor", "no signature"),
        ("```python\\n{STYLE}\\n```", "none", "no fenced example"),
        (
            EXAMPLE,
            textwrap.dedent("\n".join(line.strip() for line in EXAMPLE.splitlines())),
            "indentation is lost",
        ),
        ("def run(x):", "def go(x):", "no function `run`"),
        ("return x'''", "return (x'''", "not Python"),
    ],
)
def test_what_cannot_be_read_is_said(old: str, new: str, reason: str) -> None:
    assert old in FENCED
    with pytest.raises(CardUnreadable, match=reason):
        read_card(FENCED.replace(old, new))


def test_a_cards_code_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    card = read_card(FENCED.replace("import torch\n", f"import torch\nopen({str(mark)!r}, 'w')\n"))
    assert card.own_op == "relu" and not mark.exists()


def test_a_huge_or_deep_card_is_refused() -> None:
    for text in (
        "x" * (1 << 21),
        "```python\n" + "(" * 5000 + "\n```\n",
        "import a\n" + "(" * 100_000,
    ):
        with pytest.raises(CardUnreadable):
            read_card(text)


def own_messages(text: str) -> list[dict[str, str]]:
    """The `messages` that Python itself computes from the card's assignments of plain texts."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("SYSTEM = "))
    last = next(number for number, line in enumerate(lines) if line.startswith("messages = "))
    tree = ast.parse("\n".join(lines[first : last + 1]))
    assert not any(isinstance(node, ast.Call) for node in ast.walk(tree))
    names: dict[str, list[dict[str, str]]] = {}
    exec(
        compile(tree, "card", "exec"), {"__builtins__": {}}, names
    )  # the texts of a card without a call
    return names["messages"]


def public(name: str) -> str:
    path = CARDS / f"{name}.txt"
    if not path.is_file():
        pytest.skip("shared/cards does not lie beside the repository")
    return path.read_text(encoding="utf-8")


def test_the_public_card_equals_its_own_code() -> None:
    """Every character of the rendered prompt, for softmax, the operation of the card."""
    text = public("minicpm5-1b-kernelsmith")
    prompt = build(ops.get("softmax"), "trained", card=read_card(text))
    expected, _ = render_jinja_template(
        [own_messages(text)],
        chat_template=MINICPM5,
        add_generation_prompt=True,
        enable_thinking=False,
        bos_token="<s>",
    )
    assert render(prompt, MINICPM5, bos="<s>", add_bos=True) == expected[0]


def test_a_public_card_without_its_indentation_is_refused() -> None:
    with pytest.raises(CardUnreadable, match="indentation is lost"):
        read_card(public("qwen3.6-27b-kernelsmith"))


def test_a_page_that_is_no_card_is_said() -> None:
    with pytest.raises(CardUnreadable, match="no Python code"):
        read_card(public("kerneltune"))


def test_a_plain_request_has_two_kinds() -> None:
    prompt = build(ops.get("add_rmsnorm_gelu"), "request", "slow")
    assert prompt.system == ""
    assert prompt.user.startswith(
        "Can you provide a Triton kernel for add rmsnorm gelu?\nIts entry point is `run("
    )
    assert prompt.user.endswith("Fix it and make it faster.")
