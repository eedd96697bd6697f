"""The grammar: every op is covered in more than one structure, held-out ops stay out, and its kernels are right."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from forge import ops as forge_ops
from forge.corpus import SHARES, group, op_designs, pairs, prompt_text
from forge.grammar import canonical_hash, designs, fixed_naming, recipe, write, write_fixed
from forge.grammar.acts import ACTS
from forge.validate import Job, judge_quick
from forge.workers import start
from referee.ops import Op, catalogue, get
from referee.ops.activations import ACTIVATIONS

SAMPLED = (
    "rmsnorm",
    "add_layernorm_mish",
    "softcap_softmax",
    "log_softmax",
    "cross_entropy",
    "entropy",
    "kl_div",
    "cumsum",
    "rope",
    "rope_interleaved",
    "qknorm_rope",
    "add_rmsnorm_rope",
    "bias_gelu",
    "swiglu",
    "dequant_int8",
    "l2norm",
    "rmsnorm_gemma",
    "rmsnorm_wide",
    "softmax_scale",
    "layernorm_elu_tanh",
    "rmsnorm_gelu_short",
)


def test_every_catalogue_op_has_several_structures() -> None:
    for op in catalogue():
        structures = {design.structure for design in op_designs(op)}
        assert len(structures) >= 2, op.name
        assert structures <= set(recipe(op)[1])


def test_every_activation_is_written() -> None:
    assert set(ACTS) == set(ACTIVATIONS) == set(forge_ops.SCALAR)


@pytest.mark.parametrize("act", sorted(ACTIVATIONS))
def test_scalar_activations_agree_with_the_oracle(act: str) -> None:
    import torch

    from referee.ops.oracle import ACTS as ORACLE

    points = torch.linspace(-12, 25, 149, dtype=torch.float64)
    ours = torch.tensor([forge_ops.SCALAR[act](float(n)) for n in points], dtype=torch.float64)
    torch.testing.assert_close(ours, ORACLE[act](points), rtol=1e-6, atol=1e-9)


def test_canonical_hash_ignores_names_and_only_names() -> None:
    op = get("add_layernorm_mish")
    first, second = designs(op, 2, 0)[:2]
    sources = {write(op, first, random.Random(seed)) for seed in range(8)}
    assert len(sources) > 3
    assert len({canonical_hash(source) for source in sources}) == 1
    assert canonical_hash(write_fixed(op, second)) != canonical_hash(write_fixed(op, first))


def test_designs_are_reproducible_and_distinct() -> None:
    op = get("rmsnorm_gelu")
    made = designs(op, 10, 5)
    assert made == designs(op, 10, 5)
    assert len({canonical_hash(fixed_naming(op).fill(recipe(op)[0](design))) for design in made}) == len(made) >= 8
    assert made != designs(op, 10, 6)


def test_heldout_is_at_least_fifteen_percent_and_never_trained() -> None:
    out = forge_ops.heldout()
    listed = [op for op in out if op.origin == "catalogue"]
    assert len(listed) >= 0.15 * len(catalogue())
    trained = {op.name for op in forge_ops.training()}
    assert not trained & {op.name for op in out}
    assert {pair.op for pair in pairs(scale=0.01)} <= trained
    kernels = {canonical_hash(write_fixed(op, design)) for op in out for design in op_designs(op)}
    assert not kernels & {canonical_hash(write_fixed(op, design)) for op in forge_ops.training() for design in op_designs(op)}


@pytest.mark.parametrize("name", ["add_layernorm_relu6_relu", "rmsnorm_abs_square", "rmsnorm_abs_relu2", "layernorm_silu_short"])
def test_equivalents_of_heldout_ops_are_held_out(name: str) -> None:
    assert forge_ops.is_heldout(get(name))


def test_heldout_parts_are_seen_elsewhere() -> None:
    trained = forge_ops.training()
    for op in forge_ops.heldout():
        for act in op.acts:
            assert any(act in other.acts and other.norm for other in trained), (op.name, act)


@pytest.fixture(scope="module")
def worker() -> Iterator[Executor]:
    with start(1) as pool:
        yield pool


@pytest.mark.parametrize("name", SAMPLED)
def test_kernels_agree_with_the_oracle(name: str, worker: Executor) -> None:
    op = get(name)
    chosen: dict[str, Job] = {}
    for design in op_designs(op):
        source = write(op, design, random.Random(name))
        chosen.setdefault(design.structure, Job(canonical_hash(source), op, design.structure, source))
    wrong = write_fixed(op, op_designs(op)[0]) + "\n\nright = run\n\n\ndef run(*tensors):\n    return right(*tensors) * 1.5 + 1\n"
    assert {structure: worker.submit(judge_quick, job).result() for structure, job in chosen.items()} == dict.fromkeys(chosen, "")
    assert worker.submit(judge_quick, Job("", op, "", wrong)).result() != ""


def test_prompts_fit_and_answers_are_bare_sources() -> None:
    for pair in list(pairs(scale=0.01))[::7]:
        assert pair.prompt.startswith("<s><|im_start|>system\n")
        body = pair.answer.removesuffix("```")
        assert (body != pair.answer) == pair.prompt.endswith("```python\n")
        assert body.startswith("@triton.jit\n") and body.endswith("\n") and "import" not in body
        compile(body, "kernel", "exec")


def test_groups_cover_all_training_ops() -> None:
    def heldout_name(op: Op) -> bool:
        return forge_ops.is_heldout(op)

    assert {group(op) for op in forge_ops.training()} == set(SHARES)
    assert not any(heldout_name(op) for op in forge_ops.training())
    assert "Op `softplus`" in prompt_text(next(op for op in forge_ops.synthetic() if op.name == "softplus"), "card")
