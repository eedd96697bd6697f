"""The private behaviour of Triton that the referee relies on, pinned for the versions it knows."""

from __future__ import annotations

import inspect
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.errors import PTXASError

from referee.compiling.compile_jobs import representative
from referee.compiling.compile_worker import Pointer, import_text
from referee.plans.dtypes import ITEMSIZE, TRITON_DTYPES
from referee.target import Target
from referee.triton_compat import autotuner, compiler, jit_kernels, stand_in_driver
from referee.versions import (
    KNOWN,
    TESTED,
    UnknownTriton,
    check_triton,
    facts,
    is_tested,
    triton_version,
)

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


@pytest.mark.parametrize("version", ["3.5.1", "2.1", "unknown"])
def test_an_old_version_is_refused_with_advice(version: str) -> None:
    with pytest.raises(
        UnknownTriton, match=rf"triton {version} is not supported.*needs triton 3\.6 or later"
    ):
        check_triton(version)


def test_a_newer_version_is_taken_and_not_tested() -> None:
    assert check_triton("4.0.0") == "4.0.0" and not is_tested("4.0.0")
    assert (
        all(is_tested(f"{major}.{minor}.1") for major, minor in TESTED)
        and set(TESTED) <= KNOWN.keys()
    )


def test_the_facts_of_the_installed_version_hold() -> None:
    """What the table says of this version is read off Triton itself."""
    from triton.backends.nvidia import compiler
    from triton.compiler.code_generator import CodeGenerator

    found = facts(triton.__version__)
    named = {arch: Path(compiler.get_ptxas(arch).path).name for arch in (80, 89, 90, 100, 120)}
    expected = {
        arch: "ptxas-blackwell" if arch >= found.blackwell_assembler_from else "ptxas"
        for arch in named
    }
    assert named == expected
    for word in {"advance", "make_block_ptr", "squeeze", "unsqueeze"}:
        function = getattr(tl, word, None)
        gone = function is None or "have been removed" in (function.__doc__ or "")
        assert gone == (word in found.lacks), word
    for argument in {one for known in KNOWN.values() for one in known.lacks_arguments}:
        function = getattr(tl, argument.function)
        parameters = list(inspect.signature(getattr(function, "fn", function)).parameters)
        if argument in found.lacks_arguments:
            assert argument.name not in parameters, argument
        else:
            assert parameters.index(argument.name) == argument.place, argument
    assert knobs.language.default_fp_fusion == found.fp_fusion
    refusal = "multiple comparison is not supported"
    compares = inspect.getsource(CodeGenerator.visit_Compare)
    assert (refusal not in compares) == found.chained_comparisons


def test_integers_specialise_like_their_representative() -> None:
    rng = random.Random(7)
    edges = [
        base + step
        for base in (0, 1, 16, 2**31, -(2**31), 2**32, 2**63, -(2**63), 2**64 - 16)
        for step in range(-17, 18)
    ]
    numbers = (
        edges
        + [rng.randrange(-(2**63), 2**64) for _ in range(2000)]
        + [rng.randrange(-5000, 5000) for _ in range(2000)]
    )
    for number in numbers:
        if -(2**63) <= number < 2**64:
            assert specialise(number) == specialise(representative(number)), number


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
        seen.append((jit_kernels.wraps(kernel), grid, kwargs))

    def warm_up(kernel: Any) -> None:
        seen.append(("warmup", jit_kernels.wraps(kernel), None))

    with jit_kernels.launches_go_to(launch, warm_up):
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
def test_a_killed_compiler_tool_is_not_a_failed_one(script: str, ended: bool, late: bool) -> None:
    with pytest.raises(PTXASError) as caught:
        # As Triton's compiler does: the error is raised while the other is being handled.
        try:
            subprocess.run(["sh", "-c", script], check=True)
        except subprocess.CalledProcessError as error:
            raise PTXASError(f"`ptxas` failed with error code {error.returncode}")  # noqa: B904
    assert compiler.tool_was_ended(caught.value) is ended
    assert compiler.tool_ran_out_of_time(caught.value) is late
    assert not compiler.tool_was_ended(ValueError())


def test_autotune_facts(kernels: Any) -> None:
    found = autotuner.autotune_facts(kernels.tuned)
    assert [config.all_kwargs() for config in found.configs] == [
        {"B": 1, "num_warps": 2, "num_ctas": 1, "num_stages": 3},
        {"B": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": 32},
    ]
    assert found.hooks == ()
    hooked = triton.autotune(
        [triton.Config({}, pre_hook=print)],
        key=[],
        pre_hook=print,
        post_hook=print,
        prune_configs_by={"perf_model": print, "early_config_prune": print},
    )(kernels.tuned.fn)
    assert autotuner.autotune_facts(hooked).hooks == (
        "pre_hook",
        "post_hook",
        "Config(pre_hook=...)",
    )
    pruned = triton.autotune(
        [triton.Config({"B": b}) for b in (1, 2, 4)],
        key=[],
        prune_configs_by={
            "perf_model": lambda n, B, **rest: -B,
            "top_k": 1,
            "early_config_prune": lambda c, named: c[: named["n"]],
        },
    )(kernels.tuned.fn)
    found = autotuner.autotune_facts(pruned, (None, 2))
    assert ([config.kwargs["B"] for config in found.configs], found.hooks, found.compares) == (
        [2],
        (),
        facts(triton.__version__).measures_one_left,
    )
    made_up = triton.autotune(
        [triton.Config({}), triton.Config({"B": 2})],
        key=[],
        prune_configs_by={"early_config_prune": lambda c, named: [triton.Config({"B": 9})]},
    )(kernels.tuned.fn)
    with pytest.raises(ValueError, match="choose from"):
        autotuner.autotune_facts(made_up)
    # Both reset tensors around tuning runs only; the launch that follows is the same with or
    # without them.
    quiet = triton.autotune(
        [triton.Config({"B": 1})], key=[], reset_to_zero=["x"], restore_value=["x"]
    )(kernels.tuned.fn)
    assert autotuner.autotune_facts(quiet).hooks == ()


@pytest.mark.parametrize("left", [1, 2])
def test_triton_measures_what_the_table_says(
    kernels: Any, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A configuration that pruning leaves alone is measured by some versions only."""
    tuned = triton.autotune(
        [triton.Config({"B": b}) for b in (1, 2, 4)],
        key=[],
        prune_configs_by={"early_config_prune": lambda configs, *_, **__: configs[:left]},
    )(kernels.tuned.fn)
    measured: list[Any] = []

    def bench(*_: object, config: Any, **__: object) -> list[float]:
        measured.append(config)
        return [1.0]

    monkeypatch.setattr(type(tuned.fn), "run", lambda *_, **__: None)
    monkeypatch.setattr(type(tuned), "_bench", bench)
    compares = autotuner.autotune_facts(tuned, (None, 2)).compares
    tuned.run(None, 2, C=1, grid=(1,))
    assert bool(measured) == compares and len(measured) in (0, left)


def test_arguments_that_are_none_are_reset_as_the_table_says(kernels: Any) -> None:
    tuned = triton.autotune(
        [triton.Config({"B": b}) for b in (1, 2)],
        key=[],
        reset_to_zero=["x"],
        restore_value=["x"],
    )(kernels.tuned.fn)
    named = {"x": None, "n": 2}
    found = autotuner.autotune_facts(tuned, (None, 2))
    if facts(triton.__version__).resets_none:
        tuned.pre_hook(named)
        tuned.post_hook(named, exception=None)
        assert (found.zeroed, found.restored) == ((), ())
    else:
        with pytest.raises(AttributeError):
            tuned.pre_hook(named)
        assert (found.zeroed, found.restored) == (("x",), ("x",))


def test_signatures_constexprs_and_hooks(kernels: Any) -> None:
    assert list(jit_kernels.signature_of(kernels.plain).parameters) == [
        "x",
        "n",
        "m",
        "w",
        "pair",
        "B",
    ]
    assert jit_kernels.constexpr_names(kernels.plain) == {"B"}
    assert not jit_kernels.has_run_hooks(kernels.plain)


def test_the_driver_is_put_back(kernels: Any) -> None:
    from triton.runtime.driver import driver

    before = dict(driver.__dict__)
    with stand_in_driver.active_driver(Target.parse("sm_80")) as stand_in:
        assert driver.active is stand_in
        assert (
            stand_in.get_current_target().arch,
            stand_in.utils.get_device_properties(0)["multiprocessor_count"],
        ) == (80, 108)
    assert dict(driver.__dict__) == before


def test_a_compiled_kernel_tells_what_a_launch_needs(
    kernels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    with stand_in_driver.active_driver(Target.parse("sm_80")):
        compiled = compiler.read_compiled(
            kernels.plain.run(
                Pointer("float16", 2), 1, 1, 1, (7, 32), B=4, grid=(1,), warmup=True, num_warps=2
            )
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
    assert declared == 5 + compiler.HIDDEN_POINTERS


@pytest.mark.parametrize(
    ("device", "is_there"),
    [(None, True), (0, True), ("cuda:0", True), (1, False), ("cuda:3", False), ("cpu", False)],
)
def test_a_stand_in_driver_knows_one_device(device: Any, is_there: bool) -> None:
    with stand_in_driver.active_driver(Target(), lambda: 0, LookupError) as driver:
        for ask in (
            driver.get_current_stream,
            driver.get_device_capability,
            driver.set_current_device,
            driver.utils.get_device_properties,
        ):
            if is_there:
                ask(device)
            else:
                with pytest.raises(LookupError, match="ask about the one of the tensors"):
                    ask(device)


def test_options_that_are_left_out_change_nothing() -> None:
    given = [
        {name: value}
        for name in jit_kernels.other_options()
        for value in (None, False)
        if jit_kernels.is_left_out(name, value)
    ]
    backend = make_backend(GPUTarget("cuda", 90, 32))
    assert {backend.parse_options(options).hash() for options in given} == {
        backend.parse_options({}).hash()
    }
    assert {"launch_pdl", "enable_fp_fusion", "debug"} <= jit_kernels.other_options()
