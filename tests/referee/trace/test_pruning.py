"""What pruning leaves for a key may run at every launch of that key, whatever pruning looked at
besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.target import Target
from referee.tracing.cell_shape import CellShape
from referee.tracing.tracer import trace_source
from tests.referee.trace.good import rows

SOURCE = """
def fits(configs, named, **given):
    return [config for config in configs if config.kwargs["BLOCK"] >= named[{by!r}]]

def model(M, BLOCK, **rest):
    return BLOCK * M

@triton.autotune(configs=[triton.Config({{"BLOCK": block}}) for block in (64, 128, 1024)], key=[{key}], prune_configs_by={{{pruned}}})
@triton.jit
def _kernel(x, out, M, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out + cols, tl.load(x + cols, mask=cols < N), mask=cols < N)

def run(x):
    out = torch.empty_like(x)
    _kernel[(1,)](x, out, x.shape[0], x.shape[1])
    return out
"""
SHAPES = ((3, 50), (3, 1000), (90, 1000))


def blocks(tmp_path: Path, key: str, pruned: str, by: str = "N") -> list[set[int]]:
    """The block sizes in each cell's plan."""
    cells = [CellShape(rows("x", shape=shape).inputs, 1) for shape in SHAPES]
    source = SOURCE.format(key=key, pruned=pruned, by=by)
    found: Any = trace_source(source, str(tmp_path / "candidate.py"), Target(), cells)
    return [{_block(config) for config in plan["steps"][0]["configs"]} for plan in found["plans"]]


def _block(config: dict[str, Any]) -> int:
    return next(
        int(argument["value"]) for argument in config["arguments"] if argument["name"] == "BLOCK"
    )


EARLY = "'early_config_prune': fits"
TOP = "'perf_model': model, 'top_k': 1"


@pytest.mark.parametrize(
    ("key", "pruned", "by", "expected"),
    [
        ("'N'", EARLY, "N", [{64, 128, 1024}, {1024}, {1024}]),
        ("'M', 'N'", EARLY, "N", [{64, 128, 1024}, {1024}, {1024}]),
        # Of a key of one M any N can come first, also one that was launched with another M only.
        ("'M'", EARLY, "N", [{64, 128, 1024}] * 3),
        ("", EARLY, "N", [{64, 128, 1024}] * 3),
        ("'N'", EARLY, "M", [{64, 128, 1024}] * 3),
        ("'M'", EARLY, "M", [{64, 128, 1024}, {64, 128, 1024}, {128, 1024}]),
        ("'N'", TOP, "N", [{64}] * 3),
    ],
)
def test_the_plan_holds_what_the_key_may_have_left(
    key: str, pruned: str, by: str, expected: list[set[int]], tmp_path: Path
) -> None:
    assert blocks(tmp_path, key, pruned, by) == expected


def test_functions_around_a_launch_get_the_arguments_of_triton(tmp_path: Path) -> None:
    early = "'early_config_prune': lambda configs, named, **given: [configs[given['grid'][0] + ('warmup' in given)]]"
    assert blocks(tmp_path, "'N'", early) == [{1024}] * 3
    model = "'perf_model': lambda **given: given['BLOCK'] if given['grid'] == (1,) and 'warmup' in given else 0, 'top_k': 1"
    assert blocks(tmp_path, "'N'", model) == [{64}] * 3
    model = model.replace("given['BLOCK']", "-given['BLOCK']")
    assert blocks(tmp_path, "'N'", model) == [{1024}] * 3
    source = SOURCE[SOURCE.index("@triton.jit") :]
    chosen = "lambda args: 1024 if args['grid'] == (1,) and not args['warmup'] else 64"
    source = f'@triton.heuristics({{"BLOCK": {chosen}}})\n{source}'
    found: Any = trace_source(
        source,
        str(tmp_path / "candidate.py"),
        Target(),
        [CellShape(rows("x", shape=SHAPES[0]).inputs, 1)],
    )
    assert _block(found["plans"][0]["steps"][0]["configs"][0]) == 1024
