"""What Triton would launch, where that is not what a call seems to say: changed arguments, equal
constants, equal configurations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.reading.host_reached import unvouched
from referee.target import Target
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source
from tests.referee.trace.good import rows

TUNED = """@triton.autotune(configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["N"], %s)"""
KERNEL = """
@triton.jit
def _kernel(x, out, N, ONE: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out + cols, tl.load(x + cols, mask=cols < N) * ONE, mask=cols < N)
"""
RUN = """
def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    %s
    return out
"""
LAUNCH = "_kernel[(1,)](x, out, N, 1, BLOCK=1024)"
BOX = """
BOX = []

def note(*args, **kwargs):
    box = BOX
    box.append(1)
    return %s
"""


def refused(source: str, tmp_path: Path) -> tuple[str, str]:
    """The guard and the reason."""
    cells = [CellShape(rows("x", shape=shape).inputs, 1) for shape in ((3, 50), (3, 1000), (4, 51))]
    found: Any = trace_source(source, str(tmp_path / "candidate.py"), Target(), cells)
    return (
        (found["rejection"]["guard"], found["rejection"]["reason"])
        if "rejection" in found
        else ("", "")
    )


@pytest.mark.parametrize(
    ("before", "launch", "guard", "words"),
    [
        ("", LAUNCH, "", ""),
        (
            "",
            "_kernel[lambda meta: (triton.cdiv(N, meta['BLOCK']),)](x, out, N, 1, BLOCK=1024)",
            "",
            "",
        ),
        ("SIZES = [1]\n", "_kernel[lambda meta: (SIZES[0],)](x, out, N, 1, BLOCK=1024)", "", ""),
        # Triton launches what it showed to the grid function.
        (
            "def grid(meta):\n    meta['N'] = 1\n    return (1,)\n",
            "_kernel[grid](x, out, N, 1, BLOCK=1024)",
            "launch_feature",
            "argument",
        ),
        (
            "def grid(meta):\n    meta['X'] = 1\n    return (1,)\n",
            "_kernel[grid](x, out, N, 1, BLOCK=1024)",
            "launch_feature",
            "argument",
        ),
        # For Triton's cache 1.0 and 1, or True and 1, are one constant.
        ("", f"{LAUNCH}\n    {LAUNCH}", "", ""),
        ("", f"{LAUNCH}\n    {LAUNCH.replace(' 1,', ' 2,')}", "", ""),
        ("", f"{LAUNCH}\n    {LAUNCH.replace(' 1,', ' 1.0,')}", "launch_feature", "1.0 in another"),
        (
            "",
            f"{LAUNCH}\n    {LAUNCH.replace(' 1,', ' True,')}",
            "launch_feature",
            "True in another",
        ),
        (
            "",
            LAUNCH.replace(" 1,", " 1.0 if N % 2 else 1,"),
            "launch_feature",
            "Triton takes for one constant",
        ),
        (
            "",
            LAUNCH.replace(" 1,", " -0.0 if N % 2 else 0.0,"),
            "launch_feature",
            "Triton takes for one constant",
        ),
        # Called once by Triton, and once for each configuration here.
    ],
)
def test_launches(before: str, launch: str, guard: str, words: str, tmp_path: Path) -> None:
    found, reason = refused(before + KERNEL + RUN % launch, tmp_path)
    assert found == guard and words in reason, reason


@pytest.mark.parametrize(
    ("options", "guard", "words"),
    [
        ("launch_pdl=False, launch_cooperative_grid=False, debug=False", "", ""),
        ("launch_pdl=None, enable_fp_fusion=None", "", ""),
        ("launch_pdl=N > 50", "launch_feature", "programmatic dependent launch"),
        ("launch_pdl=1", "launch_feature", "programmatic dependent launch"),
        # Triton asks for the value itself, not for what it counts as.
        ("launch_pdl=0", "launch_feature", "programmatic dependent launch"),
        ("launch_cooperative_grid=True", "launch_feature", "cooperative"),
        # Off is not what these are without a word.
        ("enable_fp_fusion=False", "launch_feature", "enable_fp_fusion"),
        ("ir_override=''", "launch_feature", "IR overrides"),
        ("stream=None", "launch_feature", "streams"),
        ("debug=True", "trace_error", "neither a parameter"),
    ],
)
def test_options_that_are_off(options: str, guard: str, words: str, tmp_path: Path) -> None:
    found, reason = refused(KERNEL + RUN % LAUNCH.replace("BLOCK=", f"{options}, BLOCK="), tmp_path)
    assert found == guard and words in reason, reason


@pytest.mark.parametrize(
    ("parameter", "given", "passes"),
    [
        ("launch_pdl", "False", True),
        ("launch_pdl", "True", False),
        ("enable_fp_fusion", "False", False),
        ("default_dot_input_precision", "'ieee'", False),
        ("stream", "1", True),
    ],
)
def test_a_parameter_with_the_name_of_an_option(
    parameter: str, given: str, passes: bool, tmp_path: Path
) -> None:
    kernel = KERNEL.replace("ONE:", f"{parameter}: tl.constexpr, ONE:")
    launch = LAUNCH.replace("N, 1,", f"N, {parameter}={given}, ONE=1,")
    found, reason = refused(kernel + RUN % launch, tmp_path)
    assert (found, "rename it" in reason) == (
        ("", False) if passes else ("launch_feature", True)
    ), reason


@pytest.mark.parametrize(
    ("before", "above", "guard", "words"),
    [
        (
            "",
            TUNED
            % "prune_configs_by={'early_config_prune': lambda configs, named, **given: configs[:1]}",
            "",
            "",
        ),
        (
            "",
            TUNED
            % "prune_configs_by={'early_config_prune': lambda configs, named, **given: [triton.Config({}, num_warps=4)]}",
            "trace_error",
            "must choose from",
        ),
        (
            "def prune(configs, named, **given):\n    named['out'] = named['x']\n    return configs\n",
            TUNED % "reset_to_zero=['out'], prune_configs_by={'early_config_prune': prune}",
            "trace_error",
            "leave the arguments",
        ),
        ("def one(args):\n    return 1\n", "@triton.heuristics({'EXTRA': one})", "", ""),
    ],
)
def test_functions_around_a_launch(
    before: str, above: str, guard: str, words: str, tmp_path: Path
) -> None:
    kernel = KERNEL.replace("@triton.jit", f"{above}\n@triton.jit")
    kernel = kernel.replace("N, ONE", "N, EXTRA, ONE") if "EXTRA" in above else kernel
    launch = LAUNCH.replace("N, 1,", "N, ONE=1,") if "EXTRA" in above else LAUNCH
    found, reason = refused(
        before
        + kernel
        + RUN % f"{launch}\n    {'box = BOX; box.clear()' if before.startswith(BOX[:5]) else ''}",
        tmp_path,
    )
    assert found == guard and words in reason, reason


def test_equal_values_are_one_key(tmp_path: Path) -> None:
    prune = "def prune(configs, named, **given):\n    return configs[:1] if isinstance(named['FLAG'], bool) else configs[1:]\n"
    above = """@triton.autotune(configs=[triton.Config({"TWO": 0}), triton.Config({"TWO": 1})], key=["FLAG"],
    prune_configs_by={"early_config_prune": prune})"""
    kernel = KERNEL.replace("@triton.jit", f"{above}\n@triton.jit").replace(
        "N, ONE", "N, FLAG, TWO: tl.constexpr, ONE"
    )
    cells = [CellShape(rows("x", shape=shape).inputs, 1) for shape in ((3, 50), (3, 1000))]
    source = (
        prune + kernel + RUN % "_kernel[(1,)](x, out, N, True if N == 50 else 1, ONE=1, BLOCK=1024)"
    )
    found: Any = trace_source(source, str(tmp_path / "candidate.py"), Target(), cells)
    assert [len(plan["steps"][0]["configs"]) for plan in found["plans"]] == [2, 2]


@pytest.mark.parametrize(
    "above",
    ["@triton.heuristics({'EXTRA': note})", "@triton.heuristics({'EXTRA': lambda a: note(a)})"],
)
def test_functions_that_keep_something_are_not_vouched_for(above: str) -> None:
    kernel = KERNEL.replace("@triton.jit", f"{above}\n@triton.jit").replace(
        "N, ONE", "N, EXTRA, ONE"
    )
    assert unvouched(BOX % "1" + kernel + RUN % LAUNCH)


OTHER = KERNEL.replace("* ONE", "* 0").replace("_kernel", "_other").replace("@triton.jit\n", "")
MADE = OTHER + "get, jit = getattr, 'j' 'it'\n_made = get(triton, jit)(_other)\n"
FOREIGN = {
    "made at import": (MADE, LAUNCH.replace("_kernel[", "_made[")),
    "renamed": (
        MADE,
        "setattr(_made, '__name__', '_kernel')\n    " + LAUNCH.replace("_kernel[", "_made["),
    ),
    "bound in run": (MADE, "globals()['_kernel'] = _made\n    " + LAUNCH),
    "with the name bound in run": (
        MADE,
        "setattr(_made, '__name__', '_kernel')\n    globals()['_kernel'] = _made\n    " + LAUNCH,
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_launch_is_of_the_kernel_in_the_text(name: str, tmp_path: Path) -> None:
    before, launch = FOREIGN[name]
    guard, reason = refused(KERNEL + before + RUN % launch, tmp_path)
    assert guard == "launch_feature" and "does not bind to this name" in reason, reason
