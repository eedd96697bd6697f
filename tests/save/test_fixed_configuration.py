"""An autotuned kernel is saved with the configuration that was judged, or not at all."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from kmint_tui.save.fixed_configuration import fix_configuration
from kmint_tui.save.host_code import NotSaveable, check
from tests.save.test_host_code import GOOD

KERNEL = GOOD.replace("BLOCK=BLOCK, num_warps=8 if BLOCK >= 4096 else 4", "")
CONFIGS = "[triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 512}, num_warps=4), triton.Config({'BLOCK': 8192}, num_stages=2)]"


def tuned(configs: str = CONFIGS, before: str = "") -> str:
    """A kernel with that list of configurations."""
    return f"{before}\n@triton.autotune(configs={configs}, key=['N']){KERNEL}"


def verdict(detail: str, mode: str = "replay") -> dict[str, Any]:
    """What of a verdict says which configuration was judged."""
    return {"mode": mode, "checks": [{"name": "autotune", "status": "pass", "detail": detail}]}


@pytest.mark.parametrize(
    ("before", "configs", "picked", "launch"),
    [
        ("", CONFIGS, "{0: 1}", "BLOCK=8192, num_stages=2"),
        ("", CONFIGS, "{1: 0}", "BLOCK=512, num_warps=4"),
        (f"CONFIGS = {CONFIGS}", "CONFIGS", "{0: 1, 2: 1}", "BLOCK=8192, num_stages=2"),
        ("", "[triton.Config({'BLOCK': 1024}, 8, 2)]", "", "BLOCK=1024, num_warps=8, num_stages=2"),
    ],
)
def test_the_one_that_was_judged_is_written_in(
    before: str, configs: str, picked: str, launch: str
) -> None:
    text, chosen = fix_configuration(
        tuned(configs, before), verdict(f"configuration by step: {picked}")
    )
    launches = [
        ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
    ]
    assert any(
        found.startswith("_kernel[") and found.endswith(f"N, {launch})") for found in launches
    ), launches
    assert chosen is not None and chosen.kernel == "_kernel" and "autotune" not in text
    check(text)


def test_what_is_not_autotuned_stays_as_it_is() -> None:
    assert fix_configuration(GOOD, verdict("")) == (GOOD, None)


def test_without_a_gpu_it_is_the_first() -> None:
    chosen = fix_configuration(tuned(), verdict("", mode="interpret"))[1]
    assert (
        chosen is not None
        and chosen.values == {"BLOCK": 512, "num_warps": 4}
        and "none was timed" in chosen.reason
    )


@pytest.mark.parametrize("pruned", ["prune_configs_by={'top_k': 1}", "**OPTIONS"])
@pytest.mark.parametrize("mode", ["replay", "interpret"])
def test_what_is_pruned_is_not_saved(pruned: str, mode: str) -> None:
    with pytest.raises(NotSaveable, match="prunes"):
        fix_configuration(
            tuned().replace("key=['N']", f"key=['N'], {pruned}"),
            verdict("configuration by step: {0: 0}", mode),
        )


@pytest.mark.parametrize(
    "detail", ["", "configuration by step: {0: 7}", "configuration by step: {0: 0, 1: 1}"]
)
def test_what_was_not_judged_is_not_guessed(detail: str) -> None:
    with pytest.raises(NotSaveable, match="which one configuration"):
        fix_configuration(tuned(), verdict(detail))


@pytest.mark.parametrize(
    "configs",
    [
        "[triton.Config({'BLOCK': b}) for b in (512, 1024)]",
        "[triton.Config({'BLOCK': open('x')})]",
        "[triton.Config({'BLOCK': 512}, num_ctas=2)]",
        "[triton.Config({'BLOCK': 512}, pre_hook=print)]",
        # The referee does not tell this one from `{'BLOCK': 512}`, and Triton takes 4 warps for
        # that one.
        "[triton.Config({'BLOCK': 512, 'launch_pdl': False})]",
        "[triton.Config({'BLOCK': 512, 'num_warps': 8})]",
        "[open('x')]",
        "[]",
        "OTHER",
    ],
)
def test_configurations_that_are_computed_are_refused(configs: str) -> None:
    with pytest.raises(NotSaveable) as refused:
        fix_configuration(tuned(configs), verdict("configuration by step: {0: 0}"))
    assert refused.value.fix


def test_two_autotuned_kernels_are_refused() -> None:
    second = KERNEL[: KERNEL.index("# whole row")].replace("_kernel", "_other")
    with pytest.raises(NotSaveable, match="2 of its kernels"):
        fix_configuration(
            tuned() + f"\n@triton.autotune(configs={CONFIGS}, key=['N']){second}", verdict("")
        )
