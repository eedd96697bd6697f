"""The peers: how each gives a callable for an operation at a case, and its emitted Triton.

A peer that is not installed, or that has nothing like the operation, raises NotRun with the reason.
The worker of `bench/peers.py` imports this module. Inputs are on the GPU.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.emitted import HEADER, Emitted, NotExtracted, kernel_file
from bench.emitted_helion import from_helion
from bench.emitted_inductor import Chosen, from_inductor
from referee.ops.grammar import LAYER_EPS, RMS_EPS
from referee.ops.signatures import signature
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.timing.baselines import MODES, compiled
from referee.timing.measurement import AUTOTUNE, COMPILE, EAGER

Callee = Callable[..., Any]

KMINT, LIGER, QUACK = "kmint", "liger", "quack"
HELION = {"helion none": "none", "helion quick": "quick"}
"""Helion's efforts of tuning, by the names of the peers."""
PEERS = (KMINT, EAGER, COMPILE, AUTOTUNE, LIGER, *HELION, QUACK)
DTYPES = ("float16", "bfloat16", "float32")
KERNEL_HEADER = (
    f"import math\n{HEADER}import torch.nn.functional as F\nfrom torch import Tensor\n\n"
)
"""Imports that a draft may leave out."""
PACKAGES = {LIGER: "liger-kernel", QUACK: "quack-kernels", **dict.fromkeys(HELION, "helion")}
QUACK_ABSENT = (
    "quack-kernels is not installed: with nvidia-cutlass-dsl 4.8.1 its wheels have 101 MB, and 45 MB"
    " can be carried to the machine"
)
EMITTING = (COMPILE, AUTOTUNE, *HELION)
"""The peers that emit Triton."""


class NotRun(RuntimeError):
    """The peer does not take part at this place; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An operation at one case, kmint's kernel for it or None, and Helion's budget in seconds."""

    op: str
    task: Task
    cell: Cell
    kernel: str | None
    folder: Path
    tuning_seconds: float

    @property
    def dtype(self) -> str:
        """The dtype of the first input."""
        return self.cell.inputs[0].dtype


@dataclass(frozen=True)
class Prepared:
    """A callable for the case's inputs, and a remark on it. `emitted` gives its Triton."""

    callee: Callee
    note: str = ""
    emitted: Callable[[], str] | None = None


def version_of(peer: str) -> str | None:
    """The installed version of a peer's package; None without one."""
    try:
        return metadata.version(PACKAGES[peer])
    except (KeyError, metadata.PackageNotFoundError):
        return None


def prepare(peer: str, place: Place) -> Prepared:
    """The peer's callable, not called yet. Raises NotRun, or whatever the peer raises."""
    if peer == KMINT:
        return Prepared(_kmint(place))
    if peer in (EAGER, COMPILE, AUTOTUNE):
        return _pytorch(peer, place)
    if version_of(peer) is None:
        absent = f"{PACKAGES[peer]} is not installed"
        raise NotRun(QUACK_ABSENT if peer == QUACK else absent)
    if peer == LIGER:
        return _liger(place.op)
    if peer in HELION:
        return _helion(peer, place)
    return Prepared(_quack(place.op))


def _kmint(place: Place) -> Callee:
    """`run` of kmint's kernel, from a file of its text."""
    if place.kernel is None:
        raise NotRun("no kernel: the book of this device has none, and --kernel gives none")
    name = f"kmint_{place.op}_{hashlib.sha256(place.kernel.encode()).hexdigest()[:12]}"
    path = place.folder / f"{name}.py"
    path.write_text(KERNEL_HEADER + place.kernel + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    run: Callee = module.run
    return run


def _pytorch(peer: str, place: Place) -> Prepared:
    if peer == EAGER:
        return Prepared(place.task.timed or place.task.eager)
    mode = MODES[peer]
    return Prepared(compiled(place.task, mode), emitted=lambda: inductor_text(place, mode))


def _liger(op: str) -> Prepared:
    """Liger's forward function, in the form that computes as the operation does."""
    known: Mapping[str, tuple[str, Callable[[Callee], Callee]]] = {
        "rmsnorm": ("LigerRMSNormFunction", lambda f: lambda x, w: f(x, w, RMS_EPS, 0.0, "gemma")),
        "layernorm": ("LigerLayerNormFunction", lambda f: lambda x, w, b: f(x, w, b, LAYER_EPS)),
        "softmax": ("LigerSoftmaxFunction", lambda f: f),
        "swiglu": ("LigerSiLUMulFunction", lambda f: f),
        "geglu": ("LigerGELUMulFunction", lambda f: f),
        "cross_entropy": (
            "LigerCrossEntropyFunction",
            lambda f: lambda x, tgt: f(x, tgt, None, -100, 0.0, 0.0, "none")[0],
        ),
        "add_rmsnorm": (
            "LigerFusedAddRMSNormFunction",
            lambda f: lambda x, residual, w: f(x, residual, w, RMS_EPS, 0.0, "gemma", False)[0],
        ),
    }
    if op not in known:
        raise NotRun(f"Liger has no {op} of this form: its own turns two tensors in place")
    name, adapted = known[op]
    note = "writes the sum too" if op == "add_rmsnorm" else ""
    return Prepared(adapted(getattr(importlib.import_module("liger_kernel.ops"), name).apply), note)


def _quack(op: str) -> Callee:
    known: Mapping[str, tuple[str, str, Callable[[Callee], Callee]]] = {
        "rmsnorm": ("quack.rmsnorm", "rmsnorm", lambda f: lambda x, w: f(x, w, eps=RMS_EPS)),
        "softmax": ("quack.softmax", "softmax", lambda f: f),
        "cross_entropy": (
            "quack.cross_entropy",
            "cross_entropy",
            lambda f: lambda x, tgt: f(x, tgt, reduction="none"),
        ),
    }
    if op not in known:
        raise NotRun(f"QuACK has no {op} of this form")
    module, name, adapted = known[op]
    return adapted(getattr(importlib.import_module(module), name))


def _helion(peer: str, place: Place) -> Prepared:
    """A new kernel of Helion, tuned with this effort at its first call."""
    import helion  # type: ignore[import-not-found,unused-ignore]

    from bench.helion_kernels import FUNCTIONS

    if place.op not in FUNCTIONS:
        raise NotRun(f"bench/helion_kernels.py has no {place.op}")
    effort = HELION[peer]
    # Helion reads its settings when a kernel is made; versions lack some of them as arguments.
    os.environ["HELION_AUTOTUNE_BUDGET_SECONDS"] = str(max(1, int(place.tuning_seconds)))
    os.environ["HELION_AUTOTUNE_PROGRESS_BAR"] = "0"
    function = FUNCTIONS[place.op]
    kernel: Any = helion.kernel(function, autotune_effort=effort, autotune_log_level=0)

    def emitted() -> str:
        settings = _chosen_settings(kernel, place)
        return helion_text(helion, function, place, settings)

    return Prepared(kernel, emitted=emitted)


def _chosen_settings(kernel: Any, place: Place) -> Any:
    """The configuration that Helion chose for the case; None for its default one."""
    return getattr(kernel.bind(place.task.inputs(place.cell, 0, "cuda")), "_config", None)


def of_dtype(cell: Cell, dtype: str, device: str) -> tuple[Tensor, ...]:
    """Uninitialised inputs of the case's shapes, with another dtype where the case has its own."""
    own = cell.inputs[0].dtype
    return tuple(
        torch.empty(
            spec.shape,
            dtype=getattr(torch, dtype if spec.dtype == own else spec.dtype),
            device=device,
        )
        for spec in cell.inputs
    )


def helion_text(
    helion: Any, function: Callee, place: Place, settings: Any, device: str = "cuda"
) -> str:
    """A kernel file of Helion's Triton for dynamic shapes with these settings, for each dtype.

    Raises NotExtracted.
    """
    texts = {}
    for dtype in DTYPES:
        kernel = helion.kernel(function, static_shapes=False)
        bound = kernel.bind(of_dtype(place.cell, dtype, device))
        config = settings or bound.config_spec.default_config()
        texts[dtype] = from_helion(bound.to_triton_code(config))
    about = (
        f"Triton that Helion {version_of('helion none')} emitted for {place.op}, dynamic shapes."
    )
    return kernel_file(about, signature(place.task.op), texts)


def inductor_text(place: Place, mode: str | None) -> str:
    """A kernel file of Inductor's Triton for dynamic shapes in this mode, for each dtype.

    It resets dynamo, so compiled functions compile again. Raises NotExtracted.
    """
    from torch._inductor.utils import run_and_get_code

    names = signature(place.task.op)
    texts: dict[str, Emitted] = {}
    for dtype in DTYPES:
        inputs = [torch.zeros_like(one) for one in of_dtype(place.cell, dtype, "cuda")]
        torch._dynamo.reset()
        whole = torch.compile(place.task.eager, dynamic=True, mode=mode)
        _, found = run_and_get_code(whole, *inputs)
        if len(found) != 1:
            raise NotExtracted(f"Inductor made {len(found)} modules, and one is expected")
        texts[dtype] = from_inductor(found[0], names, launches(found[0]), dtype)
    about = f"Triton that Inductor {torch.__version__} emitted for {place.op}, dynamic shapes."
    return kernel_file(about, names, texts)


def launches(text: str) -> dict[str, Chosen]:
    """The launches that the autotuner chose for the kernels of a module that has run."""
    from torch._inductor.codecache import PyCodeCache

    for module in reversed(list(PyCodeCache.modules)):
        file = Path(getattr(module, "__file__", "") or "")
        if file.is_file() and file.read_text(encoding="utf-8").strip() == text.strip():
            return chosen_of(vars(module))
    raise NotExtracted("the module of Inductor's text is not loaded")


def chosen_of(names: Mapping[str, Any]) -> dict[str, Chosen]:
    """The launches of the kernels among a module's names: those with one launcher left."""
    found = {}
    for name, value in names.items():
        launchers: Sequence[Any] = getattr(value, "launchers", ())
        if len(launchers) == 1:
            config = launchers[0].config
            blocks = {key: size for key, size in config.kwargs.items() if isinstance(size, int)}
            found[name] = Chosen(blocks, config.num_warps, config.num_stages)
    return found
