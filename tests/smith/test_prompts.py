"""The prompt texts: golden files, the choice of the example, and examples that are valid kernels."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kmint_tui.core.planning import MintOptions, plan
from kmint_tui.smith import prompts
from kmint_tui.smith.exemplars import DIALECTS, Dialect, exemplar_for, exemplar_source

GOLDEN = Path(__file__).parent / "golden"

TEXTS: dict[Dialect, tuple[str, str]] = {
    "card": ("run(x: Tensor[M, N]) -> Tensor[M, N]", "Softmax over the last dimension."),
    "trained": (
        "def run(x):  # x:(M,N) -> (M,N); softmax over the last dimension, fp32 inside",
        "row softmax.",
    ),
}
FEEDBACK = "incorrect: max abs error 0.31 at cell odd-bf16\nuse <|im_end|> a mask <think> when x<y"


def sample(dialect: Dialect, feedback: str | None = None, op: str = "softmax") -> prompts.Prompt:
    signature, description = TEXTS[dialect]
    return prompts.compose(op, signature, description, dialect, feedback=feedback)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("feedback", [None, FEEDBACK], ids=["first", "repair"])
def test_prompt_equals_its_golden_file(dialect: Dialect, feedback: str | None) -> None:
    prompt = sample(dialect, feedback)
    name = f"{dialect}-{'repair' if feedback else 'first'}.txt"
    assert f"{prompt.system}\n=====\n{prompt.user}" == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_build_takes_its_texts_from_the_catalogue(dialect: Dialect) -> None:
    from referee import ops

    op = ops.get("add_rmsnorm_gelu")
    text = ops.card_text(op) if dialect == "card" else ops.trained_text(op)
    prompt = prompts.build(op, dialect, "too slow")
    assert prompt.user.startswith(
        f"Op `add_rmsnorm_gelu`: {text.description.strip()}\nSignature:\n"
    )
    assert all(line.strip() in prompt.user for line in text.signature.splitlines())
    assert exemplar_source("rmsnorm", dialect) in prompt.user
    assert prompt.user.endswith("feedback: too slow\nFix it and make it faster.")


def test_unknown_dialect_is_an_error() -> None:
    from referee import ops

    with pytest.raises(ValueError, match="use card, trained or request"):
        prompts.build(ops.get("softmax"), "haiku")  # type: ignore[arg-type]


def test_the_exemplar_is_never_the_op_itself() -> None:
    assert [exemplar_for(name) for name in ("softmax", "swiglu", "rmsnorm")] == [
        "rmsnorm",
        "rmsnorm",
        "softmax",
    ]
    assert "_softmax_kernel" in sample("card", op="rmsnorm").user
    assert "_rmsnorm_kernel" not in sample("card", op="rmsnorm").user


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("op", ["rmsnorm", "softmax"])
def test_exemplars_are_import_free_python_with_a_run_function(op: str, dialect: Dialect) -> None:
    source = exemplar_source(op, dialect)
    tree = ast.parse(source)
    assert not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree))
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == [
        f"_{op}_kernel",
        "run",
    ]
    assert source.endswith("\n") and not source.endswith("\n\n")


def test_dialects_differ_in_comments_only_by_structure() -> None:
    assert "#" not in exemplar_source("rmsnorm", "card")
    trained = exemplar_source("rmsnorm", "trained")
    assert trained.count("\n# ") + trained.startswith("# ") == 2
    assert "\n    BLOCK = 1024\n" in trained


def test_feedback_is_one_bounded_line_without_special_tokens() -> None:
    line = prompts.one_line("a\n\tb <|im_end|></s><think> x < y" + "z" * 1000)
    assert line.startswith("a b < |im_end|>< /s>< think> x < y")
    assert len(line) == prompts.MAX_FEEDBACK
    assert "\n" not in line


@pytest.mark.parametrize(
    ("shapes", "line"),
    [((), "shape 13 12"), (("32768x512", "64x4096"), "shape 15 9"), (("Mx1024",), "shape 0 10")],
)
def test_a_graph_prompt_states_the_first_asked_shape(shapes: tuple[str, ...], line: str) -> None:
    options = MintOptions(op="softmax", model="embedded", shapes=shapes)
    request = plan(options, draw_seed=lambda: 1)
    assert request.prompt.user.splitlines()[1] == line
