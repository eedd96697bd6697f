"""The memory estimate: close to llama.cpp's real use, with a suggestion for every verdict."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kmint_tui.memory import AvailableMemory, free_memory
from kmint_tui.models import fit, usage
from kmint_tui.models.check import ModelFile, check
from kmint_tui.models.fit import reserve_on_cpu, reserve_on_gpu
from kmint_tui.smith import Options, Smith
from kmint_tui.smith.events import RunDone
from tests import tiny_models
from tests.tiny_models import Shape

MOST_ERROR = 0.10
# llama.cpp writes MiB with two decimals.
LOGGED = 5243


def shapes() -> list[tuple[str, Shape, str, int, int]]:
    """Architecture, shape, file type, drafts and tokens, drawn with a fixed seed."""
    chance, found = random.Random(6), []
    for architecture in ("llama", "llama", "llama", "llama", "qwen35", "qwen35"):
        head, kv_heads = chance.choice((32, 64, 96)), chance.choice((1, 2, 4))
        shape = Shape(
            layers=4 * chance.randint(1, 2),
            hidden=32 * chance.randint(4, 16),
            heads=kv_heads * chance.randint(1, 4),
            kv_heads=kv_heads,
            head=head,
            feed_forward=32 * chance.randint(8, 40),
            vocabulary=chance.choice((600, 8000, 24000)),
            context=8192,
        )
        quant = chance.choice(("F16", "Q8_0")) if architecture == "llama" else "F16"
        found.append(
            (
                architecture,
                shape,
                quant,
                chance.choice((1, 4, 8, 20)),
                chance.choice((16, 200, 700)),
            )
        )
    return found


@pytest.mark.parametrize(
    ("architecture", "shape", "quant", "drafts", "tokens"),
    shapes(),
    ids=lambda value: str(value)[:60],
)
def test_the_estimate_is_within_a_tenth_of_what_llama_cpp_takes(
    architecture: str, shape: Shape, quant: str, drafts: int, tokens: int, tmp_path: Path
) -> None:
    path, log = tmp_path / "model.gguf", tmp_path / "log"
    tiny_models.llama(path, shape, quant=quant) if architecture == "llama" else tiny_models.qwen35(
        path, shape
    )
    done = None
    with Smith(path, Options(log=log, threads=1)) as smith:
        for event in smith.draft("def kernel(x):", drafts, max_tokens=tokens):
            done = event if isinstance(event, RunDone) else done
            if type(event).__name__ == "Token":
                smith.cancel()
    assert done is not None
    real = usage.read(log)
    assert real is not None
    expected = fit.estimate(
        check(path), drafts=drafts, max_tokens=tokens, prompt_tokens=done.prompt_tokens
    )
    assert abs(expected.cache - real.cache) <= LOGGED
    assert abs(real.error(expected)) < MOST_ERROR, (expected, real)


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    return check(
        tiny_models.llama(tmp_path / "m.gguf", Shape(layers=8, kv_heads=4, head=64), quant="Q8_0")
    )


def judged(model: ModelFile, free: int, *, gpu: bool = False) -> fit.Fit:
    return fit.assess(
        model,
        drafts=8,
        max_tokens=1024,
        here=AvailableMemory(free, free) if gpu else AvailableMemory(free),
    )


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
def test_three_verdicts_by_what_is_free(model: ModelFile, gpu: bool) -> None:
    need = fit.estimate(model, drafts=8, max_tokens=1024, gpu=gpu).total
    extra = (reserve_on_gpu() if gpu else reserve_on_cpu()).total
    assert judged(model, need + extra, gpu=gpu).verdict == "fits"
    assert judged(model, max(need, extra) + 1, gpu=gpu).verdict == "fits unloaded"
    assert judged(model, min(need, extra) - 1, gpu=gpu).verdict == "does not fit"
    assert "GPU memory" in judged(model, need, gpu=True).text


def test_the_suggestion_would_make_it_fit(model: ModelFile) -> None:
    extra = reserve_on_cpu().total
    for drafts in (2, 7):
        free = fit.estimate(model, drafts=drafts, max_tokens=1024).total + extra
        found = judged(model, free)
        assert found.suggestion == f"with --drafts {drafts} it fits"
        assert (
            fit.assess(model, drafts=drafts, max_tokens=1024, here=AvailableMemory(free)).verdict
            == "fits"
        )
        assert (
            fit.assess(
                model, drafts=drafts + 1, max_tokens=1024, here=AvailableMemory(free)
            ).verdict
            != "fits"
        )
    free = fit.estimate(model, drafts=1, max_tokens=384).total + extra
    assert judged(model, free).suggestion == "with --drafts 1 --max-tokens 384 it fits"
    assert "smaller smith" in judged(model, extra).suggestion


def test_a_smaller_file_type_is_suggested_for_large_weights() -> None:
    big = ModelFile(
        path=Path("big"), nbytes=28 << 30, architecture="llama", name="big", quant="Q8_0", context=4096, layers=64, kv_layers=16,
        kv_heads=4, key_length=256, value_length=256, embedding=5120, vocabulary=248320, parameters=27_000_000_000, heads=24,
        feed_forward=17408,
    )  # fmt: skip
    assert judged(big, 25 << 30, gpu=True).suggestion == "as Q5_K_M it would fit"
    assert judged(big, 22 << 30, gpu=True).suggestion == "as Q4_K_M it would fit"
    assert judged(big, 64 << 30, gpu=True).verdict == "fits"


def test_recurrent_layers_keep_their_state_for_every_draft() -> None:
    """The arithmetic of a 27-billion-parameter hybrid, for nine sequences.

    It has 48 layers of 6144 x 128 numbers and a convolution.
    """
    hybrid = ModelFile(
        path=Path("h"), nbytes=1, architecture="qwen35", name="h", quant="F16", context=4096, layers=64, kv_layers=16, kv_heads=4,
        key_length=256, value_length=256, embedding=5120, vocabulary=1000, parameters=1, heads=24, feed_forward=17408, state_layers=48,
        state_size=6144 * 128, conv_size=10240, conv_kernel=4,
    )  # fmt: skip
    assert fit.estimate(hybrid, drafts=8, max_tokens=16).state == 9 * 48 * 4 * (
        6144 * 128 + 3 * 10240
    )


def test_an_unknown_amount_of_memory_is_said(model: ModelFile) -> None:
    found = fit.assess(model, drafts=8, max_tokens=16, here=AvailableMemory(None))
    assert (found.verdict, bool(found.suggestion)) == ("unknown", True)


def test_the_reserve_for_a_gpu_holds_the_largest_required_cell() -> None:
    found = reserve_on_gpu()
    assert found.flush >= 3 * (50 << 20)
    assert found.operands >= 12 * 3 * 8192 * 4096 * 2
    assert reserve_on_gpu() is found


def test_room_is_read_from_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = free_memory()
    assert here.main is None or here.main > 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert free_memory().gpu is None


def test_a_log_without_buffers_tells_nothing(tmp_path: Path) -> None:
    assert usage.read(tmp_path / "none") is None
    (tmp_path / "log").write_text("hello\n")
    assert usage.read(tmp_path / "log") is None


def test_a_session_is_told_beside_its_estimate(model: ModelFile, tmp_path: Path) -> None:
    log = tmp_path / "log"
    expected = fit.estimate(model, drafts=8, max_tokens=100)
    megabytes = expected.buffers / (1 << 20)
    words = f"load_tensors: CPU model buffer size = {megabytes - 1:.2f} MiB\nsched_reserve: CPU compute buffer size = 1.00 MiB\n"
    log.write_text(words)
    told = usage.note(log, model, drafts=8, max_tokens=100)
    assert told is not None and told[-6:] in ("(+0 %)", "(-0 %)"), told
    assert usage.note(tmp_path / "none", model, drafts=8, max_tokens=100) is None


def test_the_last_context_counts_and_only_the_gpu_if_any() -> None:
    lines = [
        "llama_model_loader: loaded meta data with 1 key-value pairs",
        "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB",
        "load_tensors:        CUDA0 model buffer size =   900.00 MiB",
        "llama_context: constructing llama_context",
        "llama_kv_cache:      CUDA0 KV buffer size =     7.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =     7.00 MiB",
        "llama_context: constructing llama_context",
        "llama_context:  CUDA_Host  output buffer size =     1.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB",
        "llama_memory_recurrent:      CUDA0 RS buffer size =     3.00 MiB",
        "sched_reserve:      CUDA0 compute buffer size =    20.00 MiB",
        "sched_reserve:  CUDA_Host compute buffer size =     2.00 MiB",
    ]
    found = usage.used(lines)
    assert found is not None
    assert [
        size >> 20
        for size in (found.weights, found.cache, found.state, found.output, found.compute)
    ] == [900, 64, 3, 0, 20]
