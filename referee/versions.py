"""The versions that a verdict depends on: of Triton, of its ptxas, of its switches, and of the host.

Nothing here imports torch or Triton. A Triton older than the first known one is refused. A newer
one than the last known one is used once the canary (`referee.canary`) has passed. It then counts as
not tested, and every verdict says so.

The workers start with a clean environment. They get the switches in `HONOURED` with the user's
values, and every verdict records them. Verdicts under different values are not compared. The
switches in `LEFT_OUT` would run other programs or change the compiler. The workers never see them,
and the verdict names them.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from referee.sandbox.demand import Protection
from referee.target import Target

_VERSION = re.compile(r"""^__version__ = ["']([^"']+)["']""", re.MULTILINE)
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True)
class Facts:
    """Facts about a version that the referee needs before its import, from Triton's files."""

    blackwell_assembler_from: int
    """Compute capability (90 for 9.0) from which Triton assembles with `ptxas-blackwell`."""
    fp_fusion: bool = True
    """Whether a * b + c is fused unless the environment or the launch says otherwise."""
    measures_one_left: bool = False
    """Whether an autotuner measures a configuration that pruning leaves alone."""
    chained_comparisons: bool = True
    """Whether a kernel may compare as in `0 <= at < size`."""
    resets_none: bool = True
    """Whether `reset_to_zero` and `restore_value` may name an argument that is None."""
    lacks: frozenset[str] = frozenset()
    """Words of `triton.language` that other known versions have and this one lacks."""
    lacks_arguments: frozenset[Argument] = frozenset()
    """Arguments of its functions that other known versions have and this one lacks."""


@dataclass(frozen=True)
class Argument:
    """An argument of a function of `triton.language`, and its place in those versions."""

    function: str
    name: str
    place: int


_BLOCK_POINTERS = frozenset({"advance", "make_block_ptr"})
_OF_BLOCK_POINTERS = frozenset(
    {
        Argument("load", "boundary_check", 3),
        Argument("load", "padding_option", 4),
        Argument("store", "boundary_check", 3),
    }
)
_FROM_3_7 = frozenset({Argument("cat", "dim", 3)})
_FROM_3_8 = frozenset({Argument("topk", "descending", 3)})
_FROM_3_9 = frozenset({Argument("cumprod", "dtype", 3), Argument("fdiv", "approx", 3)})


KNOWN: dict[tuple[int, int], Facts] = {
    (3, 6): Facts(
        blackwell_assembler_from=100,
        measures_one_left=True,
        chained_comparisons=False,
        resets_none=False,
        lacks=frozenset({"squeeze", "unsqueeze"}),
        lacks_arguments=_FROM_3_7 | _FROM_3_8 | _FROM_3_9,
    ),
    (3, 7): Facts(
        blackwell_assembler_from=100,
        measures_one_left=True,
        chained_comparisons=False,
        resets_none=False,
        lacks_arguments=_FROM_3_8 | _FROM_3_9,
    ),
    (3, 8): Facts(
        blackwell_assembler_from=100, chained_comparisons=False, lacks_arguments=_FROM_3_9
    ),
    (3, 9): Facts(
        blackwell_assembler_from=90, lacks=_BLOCK_POINTERS, lacks_arguments=_OF_BLOCK_POINTERS
    ),
}
TESTED = ((3, 6), (3, 7), (3, 8), (3, 9))
"""The releases with which the referee's tests and the selftest have run (`release/matrix.py`)."""
# Triton 3.9 announces that its successor does not fuse by default.
_NEWER = Facts(
    blackwell_assembler_from=90,
    fp_fusion=False,
    lacks=_BLOCK_POINTERS,
    lacks_arguments=_OF_BLOCK_POINTERS,
)


class UnknownTriton(RuntimeError):
    """Triton is missing or too old, or the canary failed."""


def triton_version() -> str | None:
    """The version of the first Triton on the import path, without importing it."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    told = _VERSION.search(Path(spec.origin).read_text(encoding="utf-8"))
    return told[1] if told is not None else metadata.version("triton")


def check_triton(found: str | None = None) -> str:
    """The version (by default the installed one). Raises UnknownTriton."""
    found = found or triton_version()
    needed = f"the referee needs triton {'.'.join(map(str, min(KNOWN)))} or later"
    if found is None:
        raise UnknownTriton(f"triton is not installed: {needed}")
    if (release := _release(found)) is None:
        reason = "its version is no number"
        raise UnknownTriton(f"triton {found} is not supported: {reason}; {needed}")
    if release < min(KNOWN):
        raise UnknownTriton(f"triton {found} is not supported: {needed}; install one")
    return found


def is_tested(version: str) -> bool:
    """Whether all of kmint's tests have run with this version's minor release."""
    return _release(version) in TESTED


def facts(version: str) -> Facts:
    """The facts of a version that `check_triton` accepts."""
    release = _release(version)
    return KNOWN.get(release, _NEWER) if release else _NEWER


def tested_versions() -> str:
    """The tested minor releases, for messages."""
    names = [f"{major}.{minor}" for major, minor in TESTED]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _release(version: str) -> tuple[int, int] | None:
    numbers = _NUMBERS.match(version)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


FP_FUSION = "TRITON_DEFAULT_FP_FUSION"
HONOURED = (FP_FUSION, "TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_F32_DEFAULT", "DISABLE_PTXAS_OPT")
LEFT_OUT = (
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",
    "DISABLE_LLVM_OPT",
    "DISABLE_MMA_V3",
    "DISABLE_MMA_V5",
    "LLVM_PASS_PLUGIN_PATH",
    "PTXAS_OPTIONS",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_OVERRIDE_ARCH",
    "TRITON_PLUGIN_PATHS",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
)
_VALUES = {"1": "1 true on y yes", "0": "0 false off n no"}
_PRECISIONS = frozenset({"ieee", "tf32", "tf32x3"})


def switches(triton: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The honoured switches that are set, for this version of Triton.

    FP_FUSION is always included, because its default differs between versions.
    """
    given = os.environ if environment is None else environment
    found = {FP_FUSION: "1" if facts(triton).fp_fusion else "0"}
    values = {name: _value(name, given.get(name, "")) for name in HONOURED}
    found |= {name: value for name, value in values.items() if value is not None}
    return {name: value for name, value in found.items() if name == FP_FUSION or value != "0"}


def left_out(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names of set switches that do not reach the workers, or that have unknown values."""
    given = os.environ if environment is None else environment
    unknown = [name for name in HONOURED if given.get(name) and _value(name, given[name]) is None]
    return (*unknown, *(name for name in LEFT_OUT if given.get(name)))


def unusual_switches(given: Mapping[str, str]) -> dict[str, str]:
    """The switches of a verdict or a worker that differ from the usual values."""
    return {name: value for name, value in given.items() if (name, value) != (FP_FUSION, "1")}


def compiler_name(environment: Mapping[str, Any]) -> str:
    """Triton's version in a verdict's `environment`, with the switches that differ from the
    defaults.

    Verdicts with equal names are comparable.
    """
    given = environment.get("switches")
    found = unusual_switches(given) if isinstance(given, Mapping) else {}
    return " ".join((str(environment.get("triton")), *_settings(found.items())))


def _settings(given: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(given)]


def compiler_reservation(environment: Mapping[str, Any]) -> str:
    """The verdict's reservations about its compiler, in words, or ""."""
    tested = environment.get("triton_tested", True)
    untested = "" if tested else f"triton {environment.get('triton')} is not a tested version"
    names = ", ".join(environment.get("switches_left_out") or ())
    ignored = f"set in the environment and left out: {names}" if names else ""
    return "; ".join(filter(None, (untested, ignored)))


def _value(name: str, given: str) -> str | None:
    """The value in Triton's spelling; None if it is unset or unknown."""
    word = given.strip().lower()
    if name == "TRITON_F32_DEFAULT":
        return word if word in _PRECISIONS else None
    return next((value for value, words in _VALUES.items() if word in words.split()), None)


class ToolchainError(RuntimeError):
    """This host cannot compile kernels; the message says why."""


@dataclass(frozen=True)
class Toolchain:
    """The compiler for a target. `identity` changes whenever a kernel's result could change."""

    triton: str
    ptxas: str
    ptxas_version: str
    switches: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> str:
        """Versions and switches, for cache keys and reports."""
        versions = f"triton {self.triton}", f"ptxas {self.ptxas_version}"
        return ", ".join((*versions, *_settings(self.switches)))


def toolchain(target: Target) -> Toolchain:
    """The compiler for a target. Raises ToolchainError or UnknownTriton."""
    triton = check_triton()
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise ToolchainError("triton is not installed")
    name = "ptxas-blackwell" if target.arch >= facts(triton).blackwell_assembler_from else "ptxas"
    path = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
    if not path.is_file():
        raise ToolchainError(f"triton was installed without {name}")
    given = tuple(sorted(switches(triton).items()))
    return Toolchain(triton, str(path), _ptxas_version(str(path)), given)


PTXAS_SECONDS = 600
"""Seconds for a program that only writes its version; a busy machine may take minutes."""


@functools.lru_cache
def _ptxas_version(path: str) -> str:
    try:
        told = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=PTXAS_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"ptxas cannot be run: {error}") from error
    match = re.search(r"release (\d+\.\d+)", told)
    if match is None:
        raise ToolchainError("ptxas does not tell its version")
    return match[1]


# PyTorch 2.14 looks for these packages (torch/_native) and then runs their normalisations, sums and
# attention.
_REROUTING = (
    "apache-tvm-ffi",
    "flash-attn",
    "flash-attn-4",
    "helion",
    "nvidia-cutlass-dsl",
    "nvmath-python",
    "quack-kernels",
)


def describe_host(protections: Sequence[Protection] = ()) -> dict[str, Any]:
    """The part of a verdict's `environment` that does not depend on the device.

    `sandbox` names every layer, active or not. It is empty without `protections`, when nothing ran.
    """
    return {
        "kmint": _version("kmint"),
        "torch": _version("torch"),
        **describe_triton(),
        "switches_left_out": list(left_out()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sandbox": [asdict(layer) for layer in protections],
    }


def describe_triton() -> dict[str, Any]:
    """The installed Triton, whether it is a tested one, and its compiler switches."""
    triton = triton_version()
    return {
        "triton": triton,
        "triton_tested": triton is not None and is_tested(triton),
        "switches": switches(triton) if triton is not None else {},
    }


def rerouting() -> dict[str, str]:
    """Installed packages, with versions, whose kernels PyTorch uses for some of its operations."""
    return {name: found for name in _REROUTING if (found := _version(name)) is not None}


@functools.cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
