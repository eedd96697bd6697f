"""The private behaviour of Triton that the referee relies on, pinned for the versions it knows."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.errors import PTXASError

from referee import triton_private
from referee.compiling.compile_worker import Pointer, import_text
from referee.plans.dtypes import ITEMSIZE, TRITON_DTYPES
from referee.target import Target
from referee.triton_version import UnknownTriton, check_triton, triton_version

TEXT = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"B": 1}, num_warps=2), triton.Config({"B": 2}, maxnreg=32)], key=[])
@triton.heuristics({"C": lambda args: args["n"]})
@triton.jit
def tuned(x, n, B: tl.constexpr, C: tl.constexpr):
    tl.store(x, n)

@triton.jit(do_not_specialize=["m"])
def plain(x, n, m, w: tl.int64, pair, B: tl.constexpr):
    tl.store(x, n + m + w + pair[1])
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return import_text(TEXT, str(tmp_path_factory.mktemp("private") / "kernels.py"))


def specialise(value: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = native_specialize_impl(BaseBackend, value, False, True, True)
    return found


def test_this_version_is_known() -> None:
    assert check_triton() == triton_version() == triton.__version__


@pytest.mark.parametrize("version", ["3.5.1", "3.8.0", "4.0.0", "2.1"])
def test_an_unknown_version_is_refused_with_advice(version: str) -> None:
    with pytest.raises(UnknownTriton, match=rf"triton {version} is not supported.*3\.6 and 3\.7"):
        check_triton(version)


def test_integers_specialise_like_their_representative() -> None:
    rng = random.Random(7)
    edges = [base + step for base in (0, 1, 16, 2**31, -(2**31), 2**32, 2**63, -(2**63), 2**64 - 16) for step in range(-17, 18)]
    numbers = edges + [rng.randrange(-(2**63), 2**64) for _ in range(2000)] + [rng.randrange(-5000, 5000) for _ in range(2000)]
    for number in numbers:
        if -(2**63) <= number < 2**64:
            assert specialise(number) == specialise(triton_private.representative(number)), number


def test_what_does_not_depend_on_the_value() -> None:
    assert specialise(0.5) == specialise(1.0) == specialise(float("nan")) == ("fp32", None)
    assert specialise(True) == specialise(False) == ("u1", None)


def test_what_becomes_a_constant() -> None:
    assert [specialise(value)[0] for value in (None, 1)] == ["constexpr"] * 2
    for other in ("text", triton.language.float32):
        with pytest.raises(TypeError):
            specialise(other)
    assert [specialise(value)[0] for value in (0, 2, 2**31, 2**63)] == ["i32", "i32", "i64", "u64"]


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_pointers_specialise_by_dtype_and_alignment(dtype: str) -> None:
    aligned, shifted = specialise(Pointer(dtype, 0)), specialise(Pointer(dtype, 8))
    assert aligned[0] == shifted[0] and aligned[0].startswith("*")
    assert (aligned[1], shifted[1]) == ("D", "")
    assert specialise(Pointer(dtype, 16)) == specialise(Pointer(dtype, 4096)) == aligned


@pytest.mark.parametrize("name", sorted(TRITON_DTYPES))
def test_dtype_names_make_dtypes(name: str) -> None:
    assert triton.language.dtype(name).name == name


def test_every_launch_form_is_diverted(kernels: Any) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def launch(kernel: Any, args: Any, grid: Any, kwargs: Any) -> None:
        seen.append((triton_private.wraps(kernel), grid, kwargs))

    def warm_up(kernel: Any) -> None:
        seen.append(("warmup", triton_private.wraps(kernel), None))

    with triton_private.launches_go_to(launch, warm_up):
        kernels.tuned[(1,)](2, n=3)
        kernels.tuned.run(2, 3, grid=(4,), warmup=False)
        kernels.tuned.fn[(5,)](2, 3, B=1)
        kernels.plain[(6,)](1, num_warps=8)
        kernels.plain.warmup(1, grid=(1,))
        kernels.tuned.warmup(1, grid=(1,))
        kernels.plain.run(1, grid=(1,), warmup=True)
    assert seen == [
        ("autotune", (1,), {"grid": (1,), "warmup": False, "n": 3}),
        ("autotune", (4,), {"grid": (4,), "warmup": False}),
        ("heuristics", (5,), {"grid": (5,), "warmup": False, "B": 1}),
        ("jit", (6,), {"grid": (6,), "warmup": False, "num_warps": 8}),
        ("warmup", "jit", None),
        ("warmup", "autotune", None),
        ("warmup", "jit", None),
    ]


@pytest.mark.parametrize(("script", "ended", "late"), [
    ("kill -9 $$", True, False), ("kill -15 $$", True, False), ("kill -XCPU $$", False, True), ("kill -11 $$", False, False),
    ("exit 255", False, False),
])  # fmt: skip
def test_a_compiler_s_tool_that_was_ended_is_told_from_one_that_failed(script: str, ended: bool, late: bool) -> None:
    with pytest.raises(PTXASError) as caught:
        # As Triton's compiler does: the error is raised while the other is being handled.
        try:
            subprocess.run(["sh", "-c", script], check=True)
        except subprocess.CalledProcessError as error:
            raise PTXASError(f"`ptxas` failed with error code {error.returncode}")  # noqa: B904
    assert triton_private.tool_was_ended(caught.value) is ended
    assert triton_private.tool_ran_out_of_time(caught.value) is late
    assert not triton_private.tool_was_ended(ValueError())


def test_autotune_facts(kernels: Any) -> None:
    facts = triton_private.autotune_facts(kernels.tuned)
    assert [config.all_kwargs() for config in facts.configs] == [
        {"B": 1, "num_warps": 2, "num_ctas": 1, "num_stages": 3},
        {"B": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": 32},
    ]
    assert facts.hooks == ()
    hooked = triton.autotune(
        [triton.Config({}, pre_hook=print)],
        key=[],
        pre_hook=print,
        post_hook=print,
        prune_configs_by={"perf_model": print, "early_config_prune": print},
    )(kernels.tuned.fn)
    assert triton_private.autotune_facts(hooked).hooks == (
        "pre_hook",
        "post_hook",
        "Config(pre_hook=...)",
    )
    pruned = triton.autotune(
        [triton.Config({"B": b}) for b in (1, 2, 4)],
        key=[],
        prune_configs_by={"perf_model": lambda n, B, **rest: -B, "top_k": 1, "early_config_prune": lambda c, named: c[: named["n"]]},
    )(kernels.tuned.fn)
    facts = triton_private.autotune_facts(pruned, (None, 2))
    assert ([config.kwargs["B"] for config in facts.configs], facts.hooks, facts.compares) == ([2], (), True)
    made_up = triton.autotune(
        [triton.Config({}), triton.Config({"B": 2})],
        key=[],
        prune_configs_by={"early_config_prune": lambda c, named: [triton.Config({"B": 9})]},
    )(kernels.tuned.fn)
    with pytest.raises(ValueError, match="choose from"):
        triton_private.autotune_facts(made_up)
    # Both reset tensors around tuning runs only; the launch that follows is the same with or without them.
    quiet = triton.autotune([triton.Config({"B": 1})], key=[], reset_to_zero=["x"], restore_value=["x"])(kernels.tuned.fn)
    assert triton_private.autotune_facts(quiet).hooks == ()


def test_signatures_constexprs_and_hooks(kernels: Any) -> None:
    assert list(triton_private.signature_of(kernels.plain).parameters) == ["x", "n", "m", "w", "pair", "B"]
    assert triton_private.constexpr_names(kernels.plain) == {"B"}
    assert not triton_private.has_run_hooks(kernels.plain)


def test_the_driver_is_put_back(kernels: Any) -> None:
    from triton.runtime.driver import driver

    before = dict(driver.__dict__)
    with triton_private.active_driver(Target.parse("sm_80")) as stand_in:
        assert driver.active is stand_in
        assert (stand_in.get_current_target().arch, stand_in.utils.get_device_properties(0)["multiprocessor_count"]) == (80, 108)
    assert dict(driver.__dict__) == before


def test_a_compiled_kernel_tells_what_a_launch_needs(kernels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    with triton_private.active_driver(Target.parse("sm_80")):
        compiled = triton_private.read_compiled(
            kernels.plain.run(Pointer("float16", 2), 1, 1, 1, (7, 32), B=4, grid=(1,), warmup=True, num_warps=2)
        )
    assert compiled.signature == (
        ("x", "*fp16"),
        ("n", "constexpr"),
        ("m", "i32"),
        ("w", "i64"),
        ("pair", ("i32", "i32")),
        ("B", "constexpr"),
    )
    assert (compiled.name, compiled.num_warps, compiled.needs) == ("plain", 2, ())
    assert compiled.image.startswith(b"\x7fELF")
    # What follows the arguments are HIDDEN_POINTERS addresses and nothing else.
    declared = compiled.ptx.split(".entry")[1].split(")")[0].count(".param")
    assert declared == 5 + triton_private.HIDDEN_POINTERS


@pytest.mark.parametrize(("device", "is_there"), [(None, True), (0, True), ("cuda:0", True), (1, False), ("cuda:3", False), ("cpu", False)])
def test_a_stand_in_driver_knows_one_device(device: Any, is_there: bool) -> None:
    with triton_private.active_driver(Target(), lambda: 0, LookupError) as driver:
        for ask in (driver.get_current_stream, driver.get_device_capability, driver.set_current_device, driver.utils.get_device_properties):
            if is_there:
                ask(device)
            else:
                with pytest.raises(LookupError, match="ask about the one of the tensors"):
                    ask(device)


def test_options_that_are_left_out_change_nothing() -> None:
    given = [
        {name: value}
        for name in triton_private.other_options()
        for value in (None, False)
        if triton_private.is_left_out(name, value)
    ]
    backend = make_backend(GPUTarget("cuda", 90, 32))
    assert {backend.parse_options(options).hash() for options in given} == {backend.parse_options({}).hash()}
    assert {"launch_pdl", "enable_fp_fusion", "debug"} <= triton_private.other_options()
