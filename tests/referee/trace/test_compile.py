"""Compiling plans in the sandbox, for targets this machine does not have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.compiling.binaries import Binaries, Binary, BinaryError, dump_binary, parse_binary
from referee.compiling.compile import compile_in_parts, compile_plan, compile_plans
from referee.compiling.compile_jobs import request
from referee.compiling.compile_worker import describe, specialised
from referee.concurrency import CancelToken
from referee.plans.plan import Launch, LaunchPlan
from referee.reading.kernels import KernelModule, extract
from referee.sandbox.limits import TIME_UP, Limits
from referee.sandbox.zygote import Outcome, Zygote
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection
from referee.versions import check_triton, facts, toolchain
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import GOOD, rows


def traced(
    zygote: Zygote, source: str, *cells: tuple[int, int]
) -> tuple[KernelModule, tuple[LaunchPlan, ...]]:
    plans = trace(
        zygote, source, [rows("x", shape=shape) for shape in cells or ((3, 100),)], Target()
    )
    assert isinstance(plans, tuple), plans
    return extract(source), plans


def compiled(zygote: Zygote, source: str, target: Target | None = None) -> Binaries | Rejection:
    module, plans = traced(zygote, source)
    return compile_plan(zygote, module, plans[0], target or Target())


@pytest.mark.sweep
@pytest.mark.parametrize("name", GOOD)
def test_every_style_compiles(name: str, zygote: Zygote) -> None:
    good = GOOD[name]
    plans = trace(zygote, good.source, [good.cell], Target())
    assert isinstance(plans, tuple), plans
    binaries = compile_plan(zygote, extract(good.source), plans[0], Target())
    assert isinstance(binaries, Binaries), binaries
    assert all(
        binary.image.startswith(b"\x7fELF") and binary.registers
        for binary in binaries.found.values()
    )


def test_parameters_are_the_arguments_that_are_no_constants(zygote: Zygote) -> None:
    module, plans = traced(
        zygote, GOOD["tuples"].source.replace("residual", "x").replace("run(x, x)", "run(x)")
    )
    binaries = compile_plan(zygote, module, plans[0], Target())
    assert isinstance(binaries, Binaries)
    binary = binaries.found[0, 0]
    assert binary.parameters == ("*fp16", "*fp16", "*fp16", "i32", "i32")
    # The second stride is 1 and became a constant.
    assert binary.paths == ((0, 0), (0, 1), (1,), (2, 0), (3,))


def test_a_constexpr_value_becomes_a_constant_of_a_parameter(zygote: Zygote) -> None:
    source = COPY.replace("tl.arange(0, BLOCK)", "tl.arange(0, n)") + body(
        ALLOCATE, "copy[(1,)](x, y, tl.constexpr(64), BLOCK=128)", "return y"
    )
    binaries = compiled(zygote, source)
    assert isinstance(binaries, Binaries), binaries
    assert binaries.found[0, 0].parameters == ("*fp16", "*fp16")


def test_a_parameter_may_be_named_like_a_launch_option(zygote: Zygote) -> None:
    source = COPY.replace(
        "BLOCK: tl.constexpr", "BLOCK: tl.constexpr, num_warps: tl.constexpr"
    ) + body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, num_warps=8)", "return y")
    binaries = compiled(zygote, source)
    assert isinstance(binaries, Binaries), binaries
    assert binaries.found[0, 0].num_warps == 8


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"])
def test_other_targets_need_no_gpu(name: str, zygote: Zygote) -> None:
    assert isinstance(
        compiled(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"), Target.parse(name)), Binaries
    )


def test_equal_specialisations_are_compiled_once(zygote: Zygote) -> None:
    module, plans = traced(
        zygote,
        COPY + body(ALLOCATE, LAUNCH, "return y"),
        (1, 100),
        (1, 101),
        (1, 102),
        (7, 16),
        (9, 32),
    )
    binaries = compile_plans(zygote, module, plans, Target())
    assert isinstance(binaries, tuple)
    keys = [binary.found[0, 0].key for binary in binaries]
    assert len(set(keys)) == 2
    assert keys[0] == keys[1] == keys[2] != keys[3] == keys[4]


def test_a_plan_is_there_as_soon_as_its_kernels_are(zygote: Zygote, tmp_path: Path) -> None:
    source = COPY + body(ALLOCATE, LAUNCH, "return y")
    module, plans = traced(zygote, source, (1, 100), (7, 16), (1, 101))
    kept = compile_plan(zygote, module, plans[1], Target(), tmp_path)
    first, *rest = compile_in_parts(zygote, module, plans, Target(), tmp_path)
    assert first == {1: kept}
    found = {
        number: binaries.found[0, 0].key
        for part in rest
        if isinstance(part, dict)
        for number, binaries in part.items()
    }
    assert sorted(found) == [0, 2] and found[0] == found[2]


def test_of_several_failures_the_first_plan_s_is_told_last(zygote: Zygote) -> None:
    assertions = "".join(
        f"    tl.static_assert(BLOCK != {size}, 'no block of {size}')\n" for size in (64, 32)
    )
    source = COPY.replace("    tl.store", f"{assertions}    tl.store") + body(
        ALLOCATE,
        LAUNCH.replace("BLOCK=128", "BLOCK=128 if x.shape[1] == 16 else x.shape[1]"),
        "return y",
    )
    module, plans = traced(zygote, source, (1, 64), (7, 16), (1, 32))
    *parts, last = compile_in_parts(zygote, module, plans, Target())
    assert [list(part) for part in parts if isinstance(part, dict)] == [[1]]
    assert isinstance(last, Rejection) and "no block of 64" in last.reason


ERRORS = {
    "type": ("kernel `copy` at `v = tl.load(n)`", "v = tl.load(n)"),
    "shape": ("tl.arange(0, 100)", "v = tl.arange(0, 100)"),
    "name_of_helper_argument": ("kernel `copy`", "v = tl.sum(x, axis=0, nonsense=1)"),
    "constant": (
        "integer arguments that are 1 are plain numbers; write tl.cast(N, tl.float32)",
        "v = (BLOCK + 0).to(tl.float32)",
    ),
    "host_function": ("use tl.cdiv", "v = triton.cdiv(tl.program_id(0), 2)"),
    "static_assert": ("kernel `copy`", "tl.static_assert(BLOCK == 1, 'only one')"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_compile_errors_are_one_useful_line(name: str, zygote: Zygote) -> None:
    says, line = ERRORS[name]
    rejection = compiled(
        zygote,
        COPY.replace("    tl.store", f"    {line}\n    tl.store")
        + body(ALLOCATE, LAUNCH, "return y"),
    )
    assert isinstance(rejection, Rejection)
    assert (rejection.stage, rejection.guard) == ("compile", "compile_error")
    assert (
        says in rejection.reason and "\n" not in rejection.reason and len(rejection.reason) <= 400
    )


def test_an_error_without_a_line_says_what_is_constant() -> None:
    pointer = ("x", {"pointer": "*fp16", "offset": 0}, False)
    arguments = [
        pointer,
        ("N", 1, False),
        ("M", 7, False),
        ("BLOCK", 64, True),
        ("ACT", "silu", True),
    ]
    told = describe(RuntimeError("PassManager::run failed"), "kernel `k`", specialised(arguments))
    assert told.startswith(
        "kernel `k` launched with N = 1, BLOCK = 64, ACT = silu: RuntimeError: PassManager::run failed: Triton's"
    )
    assert (
        describe(RuntimeError("no"), "kernel `k`", specialised([pointer]))
        == "kernel `k`: RuntimeError: no"
    )


def test_a_constant_that_cannot_be_evaluated_is_a_compile_error(zygote: Zygote) -> None:
    source = COPY.replace("mask=i < n), mask", "mask=i < n) * BAD, mask") + body(
        ALLOCATE, LAUNCH, "return y", before="BAD = tl.constexpr(1 / 0)\n"
    )
    module = extract(source)
    _, plans = traced(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"))
    rejection = compile_plan(zygote, module, plans[0], Target())
    assert isinstance(rejection, Rejection) and "division by zero" in rejection.reason


def test_too_much_shared_memory_is_told_by_target(zygote: Zygote) -> None:
    good = GOOD["whole_row"]
    small = replace(Target(), device=replace(Target().properties, shared_memory_per_block_optin=8))
    plans = trace(zygote, good.source, [good.cell], small)
    assert isinstance(plans, tuple)
    rejection = compile_plan(zygote, extract(good.source), plans[0], small)
    assert (
        isinstance(rejection, Rejection)
        and "bytes of shared memory; sm_90 has 8" in rejection.reason
    )


TUNED = """
@triton.autotune([triton.Config({"N": n}) for n in SIZES], key=[])
@triton.jit
def k(x, y, N: tl.constexpr):
    tl.static_assert(N < 1000, "too large")
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i))

def run(x):
    y = torch.empty_like(x)
    k[(1,)](x, y)
    return y
"""


def test_skipped_configurations_are_dropped_unless_none_is_left(zygote: Zygote) -> None:
    binaries = compiled(zygote, TUNED.replace("SIZES", "(64, 2048, 128)"))
    assert isinstance(binaries, Binaries)
    assert (sorted(binaries.found), sorted(binaries.dropped)) == ([(0, 0), (0, 2)], [(0, 1)])
    assert "too large" in binaries.dropped[0, 1]
    rejection = compiled(zygote, TUNED.replace("SIZES", "(1024, 2048)"))
    assert isinstance(rejection, Rejection) and "too large" in rejection.reason


def test_a_configuration_with_a_real_error_rejects_the_candidate(zygote: Zygote) -> None:
    rejection = compiled(zygote, TUNED.replace("SIZES", "(64, 100)"))
    assert isinstance(rejection, Rejection) and rejection.guard == "compile_error"


def test_compile_bombs_end_and_cost_only_their_candidate(zygote: Zygote) -> None:
    bomb = COPY.replace(
        "    tl.store", "    for j in tl.static_range(0, 10000000):\n        i += j\n    tl.store"
    ) + body(ALLOCATE, LAUNCH, "return y")
    module, plans = traced(zygote, bomb)
    rejection = compile_plans(zygote, module, plans, Target(), seconds=3.0)
    assert isinstance(rejection, Rejection) and rejection.guard in ("timeout", "memory")
    assert isinstance(compiled(zygote, COPY + body(ALLOCATE, LAUNCH, "return y")), Binaries)


class Watched(Zygote):
    """Notes what its jobs may use."""

    def run(
        self,
        entry: str,
        payload: bytes,
        *,
        limits: Limits,
        fds: Sequence[int] = (),
        cancel: CancelToken | None = None,
    ) -> Outcome:
        self.limits = limits
        return super().run(entry, payload, limits=limits, fds=fds, cancel=cancel)


def test_a_busy_machine_takes_no_time_from_a_compiler() -> None:
    zygote = Watched()
    with zygote:
        module, plans = traced(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"))
        assert isinstance(compile_plans(zygote, module, plans, Target(), seconds=30.0), tuple)
        assert (zygote.limits.processor_seconds, zygote.limits.seconds) == (30.0, 120.0)
        assert isinstance(
            compile_plans(zygote, module, plans, Target(), seconds=30.0, patience=1.0), tuple
        )
        assert (zygote.limits.processor_seconds, zygote.limits.seconds) == (30.0, 30.0)


def test_a_worker_ends_as_its_ptxas_did_at_the_time_limit(zygote: Zygote, tmp_path: Path) -> None:
    module, plans = traced(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"))
    launch = plans[0].steps[-1]
    assert isinstance(launch, Launch)
    wanted = request(launch.kernel, launch.configs[0])
    job = {
        "text": module.text,
        "target": Target().to_json(),
        "ptxas_version": toolchain(Target()).ptxas_version,
        "requests": [wanted],
    }
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\nkill -XCPU $$\n")
    ptxas.chmod(0o755)
    program = (
        "import sys; from referee.compiling.compile_worker import compile_entry;"
        "print(compile_entry(sys.stdin.buffer.read(), sys.argv[1], ()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[3], input=json.dumps(job).encode(),
        env={**os.environ, "TRITON_PTXAS_PATH": str(ptxas), "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas)}, stdout=subprocess.PIPE, timeout=600,
    )  # fmt: skip
    assert done.returncode == TIME_UP, done.stdout


FORGED = [
    {"image": "AAAA"},
    {"image": 3},
    {"image": "not base64!"},
    {"name": "a b"},
    {"name": ""},
    {"shared": -1},
    {"shared": True},
    {"shared": 1 << 40},
    {"num_warps": "4"},
    {"registers": 1.5},
    {"parameters": ["nvTmaDesc"], "paths": [[0]]},
    {"parameters": ["*fp16", "i32"]},
    {"parameters": ["i32"], "paths": [[]]},
    {"parameters": ["i32"], "paths": [[-1]]},
    {"parameters": ["i32"], "paths": [0]},
    {"unread": 3},
    {"unread": [-1]},
    {"unread": ["7"]},
    {"extra": 1},
]


@pytest.mark.parametrize("change", FORGED, ids=[json.dumps(change) for change in FORGED])
def test_forged_reports_are_refused(change: dict[str, object]) -> None:
    honest = Binary(
        kernel="k",
        key="key",
        image=b"\x7fELF",
        name="k",
        shared=0,
        num_warps=4,
        registers=16,
        spills=0,
        parameters=("*fp16",),
        paths=((0,),),
        unread=(3, 7),
    )
    sent = json.loads(json.dumps(dump_binary(honest)))
    assert parse_binary(sent, "k", "key") == honest
    with pytest.raises(BinaryError):
        parse_binary({**sent, **change}, "k", "key")


def test_the_toolchain_tells_its_versions() -> None:
    tools = toolchain(Target())
    assert (
        tools.identity
        == f"triton {tools.triton}, ptxas {tools.ptxas_version}, TRITON_DEFAULT_FP_FUSION=1"
    )
    blackwell = facts(check_triton()).blackwell_assembler_from <= Target().arch
    assert tools.ptxas.endswith("ptxas-blackwell" if blackwell else "ptxas")
    assert toolchain(replace(Target(), arch=100)).ptxas.endswith("ptxas-blackwell")


def test_what_takes_longest_is_begun_first(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[int]] = []
    run = zygote.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        requests = json.loads(payload)["requests"]
        begun.append(
            [
                value
                for request in requests
                for name, value, _ in request["arguments"]
                if name == "BLOCK"
            ]
        )
        return run(entry, payload, **options)

    source = COPY + body(ALLOCATE, LAUNCH.replace("BLOCK=128", "BLOCK=x.shape[1]"), "return y")
    module, plans = traced(zygote, source, (1, 16), (1, 256), (1, 64))
    monkeypatch.setattr(zygote, "run", watched)
    monkeypatch.setattr("referee.compiling.compile_jobs.os.cpu_count", lambda: 1)
    assert isinstance(compile_plans(zygote, module, plans, Target()), tuple)
    assert begun == [[256, 64, 16]]
