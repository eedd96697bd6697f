"""Cases that cannot equal PEFT are refused with their cause, before any tensor if possible.

Each case is a real kind of folder; `counted` is a writer that counts the pieces of tensors.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from convert import write
from convert.errors import ConvertError
from convert.job import ConvertJob
from convert.lora_job import LoraJob
from convert.request import ConvertRequest
from tests.convert import checkpoints
from tests.convert.peft_cases import SMALL, train
from tests.convert.refusal_cases import BEFORE, changed, not_a_number, tokenizer


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    train(checkpoints.llama(folder / "base", **SMALL), folder / "adapter")
    return folder


@pytest.fixture
def pair(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    for name in ("base", "adapter"):
        shutil.copytree(sound / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the tensors whose pieces were encoded, one a piece."""
    pieces: list[str] = []
    encode = write._encode

    def counting(rule: Any, piece: Any, kind: Any) -> Any:
        pieces.append(rule.name)
        return encode(rule, piece, kind)

    monkeypatch.setattr(write, "_encode", counting)
    yield pieces


@pytest.mark.parametrize("kind", ["F16", "Q4_K_M"])
@pytest.mark.parametrize("case", BEFORE)
def test_known_causes_are_refused_before_writing(
    case: str, kind: str, pair: Path, counted: list[str]
) -> None:
    """At a direct type, and at one that llama.cpp makes from an intermediate file."""
    break_it, said, fix = BEFORE[case]
    break_it(pair)
    error = refusal(
        ConvertRequest(
            base=pair / "base", out=pair / "made.gguf", kinds=(kind,), adapter=pair / "adapter"
        )
    )
    assert said in error.reason and fix in error.fix, (error.reason, error.fix)
    assert counted == [] and not list(pair.glob("made*"))


def refusal(request: ConvertRequest) -> ConvertError:
    with pytest.raises(ConvertError) as caught, ConvertJob(request) as job:
        job.run()
    return caught.value


def test_the_sound_pair_is_converted(pair: Path, counted: list[str]) -> None:
    """The same folders without damage, so that each refusal has its own cause."""
    with ConvertJob(
        ConvertRequest(
            base=pair / "base", out=pair / "made.gguf", kinds=("F16",), adapter=pair / "adapter"
        )
    ) as job:
        job.run()
    assert len(set(counted)) == len(job.recipe.tensors)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_K_M"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("which", "name"), [("base", "embed_tokens"), ("base", "layernorm"), ("adapter", "lora_B")]
)
def test_a_value_that_is_no_number_is_refused(
    which: str, name: str, value: float, kind: str, pair: Path
) -> None:
    changed(which, not_a_number(name, value))(pair)
    error = refusal(
        ConvertRequest(
            base=pair / "base", out=pair / "made.gguf", kinds=(kind,), adapter=pair / "adapter"
        )
    )
    assert "NaN or infinity" in error.reason and not list(pair.glob("made*"))


@pytest.mark.parametrize(
    "case",
    [
        "pissa",
        "corda",
        "rank",
        "mlx-names",
        "two-adapters",
        "untrained",
        "lost-layer",
        "gptq",
        "pickled-adapter",
        "file-for-adapter",
    ],
)
def test_an_adapter_alone_is_refused_alike(case: str, pair: Path, counted: list[str]) -> None:
    break_it, said, _ = BEFORE[case]
    break_it(pair)
    with pytest.raises(ConvertError) as caught:
        with LoraJob(
            ConvertRequest(
                base=pair / "base",
                out=pair / "alone.gguf",
                kinds=("F16",),
                adapter=pair / "adapter",
            )
        ) as job:
            job.run()
    assert said in caught.value.reason
    assert counted == []


def test_a_part_of_zeros_is_said(pair: Path) -> None:
    """Some modules that learnt nothing may be intended."""

    def one(stored: dict[str, torch.Tensor]) -> None:
        key = next(key for key in sorted(stored) if "lora_B" in key)
        stored[key] = torch.zeros_like(stored[key])

    changed("adapter", one)(pair)
    with ConvertJob(
        ConvertRequest(
            base=pair / "base", out=pair / "made.gguf", kinds=("F16",), adapter=pair / "adapter"
        )
    ) as job:
        assert any("1 of 6 changes are zeros" in note for note in job.plan().notes)


@pytest.mark.parametrize(
    ("pre", "said"),
    [("llama-bpe", "cuts text as 'gpt-2' does"), ("qwen2", "cuts text as 'gpt-2' does")],
)
def test_a_name_that_contradicts_the_file_is_refused(
    pre: str, said: str, pair: Path, counted: list[str]
) -> None:
    error = refusal(
        ConvertRequest(base=pair / "base", out=pair / "made.gguf", kinds=("F16",), pre=pre)
    )
    assert said in error.reason and counted == []


@pytest.mark.parametrize("level", ["structure", "tokenizer"])
def test_a_name_that_llama_cpp_does_not_know(level: Any, pair: Path, counted: list[str]) -> None:
    tokenizer(pre_tokenizer={"type": "Punctuation", "behavior": "Isolated"})(pair)
    error = refusal(
        ConvertRequest(
            base=pair / "base", out=pair / "made.gguf", kinds=("F16",), pre="qwen22", level=level
        )
    )
    assert "does not know the pre-tokenizer 'qwen22'" in error.reason
    assert "did you mean qwen2" in error.fix and counted == []
