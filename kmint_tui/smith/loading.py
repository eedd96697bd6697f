"""Loads a model in the engine's child process and reports every automatic choice.

Every such choice becomes a `Choice` in the `ModelLoaded` event, for `kmint doctor` and `--json`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kmint_tui.memory import available_memory
from kmint_tui.smith import machine, tuning
from kmint_tui.smith.context_pool import ContextPool
from kmint_tui.smith.decoder import Decoder
from kmint_tui.smith.events import Choice, Event, Loading, Measured, ModelLoaded, Note
from kmint_tui.smith.native import LEVEL_ERROR, Log, Model, NativeError, free_on_gpu, library
from kmint_tui.smith.order import Order
from kmint_tui.smith.sampler import Picker
from kmint_tui.smith.split_drafts import gpu_memory_short
from kmint_tui.smith.threads import ThreadWatch, counts

ALL_LAYERS = -1
_MEMORY_SHARE = 0.6
"""Largest part of the free memory for which a file is read instead of mapped."""

_SLOW_FACTOR = 10
"""Ratio of a step to one read of the weights above which memory counts as short."""

_BIG = 200_000_000
"""Bytes of weights below which a slow step is not reported."""

_BUSY = 0.3
"""Number of cores in use by other programs that makes a measurement unreliable."""

_OFFLOADED = re.compile(r"offloaded (\d+)/\d+ layers to GPU")


@dataclass
class Words:
    """llama.cpp's messages while loading: its errors, and the number of layers on a GPU.

    Every line goes to `log`.
    """

    log: Callable[[str], None]
    errors: list[str] = field(default_factory=list)
    offloaded: int = 0

    def hear(self, level: int, line: str) -> None:
        """One log line."""
        self.log(line)
        if level == LEVEL_ERROR:
            self.errors.append(line)
        found = _OFFLOADED.search(line)
        if found:
            self.offloaded = int(found.group(1))


@dataclass(frozen=True)
class Ready:
    """A loaded model, and its `ModelLoaded` event."""

    model: Model
    decoder: ContextPool
    loaded: ModelLoaded
    log: Log


def load(order: Order, emit: Callable[[Event], None], log: Callable[[str], None]) -> Ready:
    """Load and measure. Raises NativeError with a code and a reason for the user."""
    _check_file(order.path)
    attempt = _Attempt(library(), order, emit, log)
    plain = order.plain_reason or attempt.remembered_plain or _distrust(attempt.lib)
    try:
        return attempt.run(plain)
    except tuning.WrongResults as wrong:
        if plain:
            raise NativeError(
                "native", f"llama.cpp gives wrong results on this machine: {wrong}"
            ) from None
        plain = f"with weights repacked for this processor, {wrong}"
    emit(Note(f"loading again with plain weights: {plain}"))
    return attempt.run(plain)


class _Attempt:
    """One attempt to load, with plain or with repacked weights."""

    def __init__(
        self, lib: Any, order: Order, emit: Callable[[Event], None], log: Callable[[str], None]
    ) -> None:
        self.lib, self._order, self._emit = lib, order, emit
        self._start = time.perf_counter()
        self._words = Words(log)
        self._log = Log(lib, self._words.hear)
        self._key = tuning.key(machine.machine_key(), machine.file_key(order.path))
        self._known = tuning.recall(order.known, self._key)
        self.remembered_plain = self._known.plain if self._known is not None else ""

    def run(self, plain: str) -> Ready:
        """Load; `plain` is the reason for plain weights, or "".

        Raises WrongResults and NativeError; nothing stays loaded then.
        """
        order = self._order
        choices: list[Choice] = []
        layers = _gpu_layers(self.lib, order, choices)
        mapped = _memory_mapped(order.path, choices)
        if plain:
            choices.append(Choice("weights", "plain", plain))
        model = _load_model(self.lib, order, self._words, layers, mapped, bool(plain), self._emit)
        try:
            offloaded = self._words.offloaded
            if layers != 0 and offloaded == 0 and not order.allow_cpu:
                raise NativeError(
                    "gpu",
                    "no layer went to the GPU, although the settings request it: check its "
                    "driver and the llama-cpp-python build",
                )
            choices.append(
                Choice(
                    "gpu_layers",
                    str(offloaded),
                    f"llama.cpp reports {offloaded} of {model.layers + 1} layers on a GPU",
                )
            )
            tuned = self._tuned(model, plain, choices)
            _warn_if_slow(model, tuned, mapped and offloaded == 0, self._emit)
        except Exception:
            model.close()
            raise
        loaded = ModelLoaded(
            path=str(order.path),
            description=model.describe(),
            architecture=model.meta("general.architecture"),
            parameters=model.parameters,
            bytes=model.bytes,
            layers=model.layers,
            vocabulary=model.tokens,
            trained_context=model.trained_context,
            recurrent=model.recurrent,
            gpu_layers=offloaded,
            choices=tuple(choices),
            seconds=time.perf_counter() - self._start,
        )
        return Ready(model, _lanes(model, order, tuned, offloaded > 0), loaded, self._log)

    def _tuned(self, model: Model, plain: str, choices: list[Choice]) -> tuning.Tuned:
        """Threads, sampling and contexts: from the settings, else remembered, else measured now."""
        tuned, source = self._known, "remembered from an earlier start"
        if tuned is None or not tuned.quiet or bool(tuned.plain) != bool(plain):
            tuned, source = _measure(model, self._words.offloaded, plain), "measured now"
            self._emit(Measured(self._key, asdict(tuned)))
        threads, method = (
            self._order.threads or tuned.threads,
            self._order.sampling or tuned.sampling,
        )
        choices.append(
            Choice(
                "threads",
                str(threads),
                "requested" if self._order.threads else f"{source}: {tuned.reason}",
            )
        )
        reason = (
            "requested"
            if self._order.sampling
            else source
            if self._words.offloaded
            else "a small part of a step on a CPU"
        )
        choices.append(Choice("sampling", method, reason))
        lanes, reason = self._lanes(model, tuned, method, source)
        choices.append(Choice("lanes", str(lanes), reason))
        return replace(tuned, threads=threads, sampling=method, lanes=lanes)

    def _lanes(
        self, model: Model, tuned: tuning.Tuned, method: str, source: str
    ) -> tuple[int, str]:
        """The largest number of contexts of a run, and the reason.

        A measurement that ended early is not remembered.
        """
        order = self._order
        single = order.single_reason or _single(model, self._words.offloaded, method)
        if single:
            return 1, single if order.lanes in (None, 1) else f"{order.lanes} requested; {single}"
        if order.lanes is not None:
            return max(1, order.lanes), "requested"
        if tuned.lanes:
            return tuned.lanes, f"{source}: {tuned.lanes_reason}"
        times, short = tuning.measure_contexts(
            model, _workers(method), lambda: gpu_memory_short(free_on_gpu(model.lib))
        )
        shown = ", ".join(f"{lanes}: {1000 * seconds:.2f} ms" for lanes, seconds in times.items())
        best, reason = (
            tuning.best_context_count(times),
            f"a step of many rows takes, by number of contexts, {shown}",
        )
        if short:
            return best, f"measured now: {reason}; no more of them: {short}"
        self._emit(Measured(self._key, asdict(replace(tuned, lanes=best, lanes_reason=reason))))
        return best, f"measured now: {reason}"


def _single(model: Model, offloaded: int, method: str) -> str:
    """The reason for one shared context of all drafts, or ""."""
    if offloaded <= model.layers:
        return "the CPU computes all or some of the layers"
    if model.recurrent:
        return "a recurrent model's state is large"
    if method == "device":
        return "the GPU chooses the tokens"
    return gpu_memory_short(free_on_gpu(model.lib))


def _lanes(model: Model, order: Order, tuned: tuning.Tuned, on_gpu: bool) -> ContextPool:
    cores = machine.cores()
    choices = (tuned.threads,) if order.threads is not None or on_gpu else counts(cores.count)
    preferred = tuned.threads if tuned.quiet else max(choices)
    decoders = []
    for _ in range(tuned.lanes):
        watch = ThreadWatch(choices, tuned.threads, tuned.step, preferred)
        picker = Picker(_workers(tuned.sampling))
        on_device = tuned.sampling == "device"
        decoders.append(
            Decoder(
                model, picker, watch, on_gpu=on_gpu, on_device=on_device, max_cells=order.max_cells
            )
        )
    return ContextPool(
        decoders,
        max_cells=order.max_cells,
        free=(lambda: free_on_gpu(model.lib)) if on_gpu else None,
    )


def _workers(method: str) -> int:
    """Number of threads that choose the tokens of one context."""
    return min(8, machine.cores().count) if method == "pool" else 1


def _distrust(lib: Any) -> str:
    """The reason against llama.cpp's repacking of weights for this processor, or ""."""
    if b"AMX_INT8 = 1" in lib.llama_print_system_info():
        return (
            "this llama.cpp's AMX kernels are not used: built by gcc 12 they crash on "
            "quantised weights, "
            "and with batched recurrent layers they give wrong results"
        )
    return ""


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise NativeError("model", f"cannot read {path}: {error.strerror}") from None
    if magic != b"GGUF":
        raise NativeError("model", f"{path} is not a GGUF file (it begins with {magic!r})")


def _gpu_layers(lib: Any, order: Order, choices: list[Choice]) -> int:
    """Number of layers to request: all of them when llama.cpp sees a GPU."""
    if order.gpu_layers is not None:
        return order.gpu_layers
    if lib.llama_supports_gpu_offload():
        choices.append(Choice("offload", "all layers", "llama.cpp sees a GPU"))
        return ALL_LAYERS
    choices.append(Choice("offload", "none", "this build of llama-cpp-python sees no GPU"))
    return 0


def _memory_mapped(path: Path, choices: list[Choice]) -> bool:
    """The system can take a mapped file's pages back during a run, but not plain memory."""
    size, free = path.stat().st_size, available_memory()
    if free is not None and size < _MEMORY_SHARE * free:
        choices.append(
            Choice(
                "memory", "plain", f"the file's {_gib(size)} are well below the {_gib(free)} free"
            )
        )
        return False
    known = "an unknown amount" if free is None else _gib(free)
    choices.append(Choice("memory", "mapped", f"the file has {_gib(size)}, {known} is free"))
    return True


def _load_model(
    lib: Any,
    order: Order,
    words: Words,
    layers: int,
    mapped: bool,
    plain: bool,
    emit: Callable[[Event], None],
) -> Model:
    shown = -1.0

    def progress(fraction: float) -> bool:
        nonlocal shown
        if fraction - shown >= 0.1:
            shown = fraction
            emit(Loading(round(fraction, 3)))
        return True

    try:
        return Model(
            lib,
            order.path,
            gpu_layers=layers,
            memory_map=mapped,
            plain_weights=plain,
            progress=progress,
        )
    except NativeError as error:
        detail = next((line for line in words.errors if "failed to load model" not in line), "")
        reason = detail.split(": ", 1)[-1] if detail else error.reason
        raise NativeError(error.code, f"llama.cpp does not accept {order.path}: {reason}") from None


def _measure(model: Model, offloaded: int, plain: str) -> tuning.Tuned:
    cores, on_gpu = machine.cores(), offloaded > 0
    others = machine.OtherWork()
    # With every layer on a GPU little work is left to share, and waking threads costs more.
    choices = (
        (1, min(4, cores.count)) if on_gpu and offloaded > model.layers else counts(cores.count)
    )
    times = tuning.measure_threads(model, tuple(sorted(set(choices))), on_gpu=on_gpu)
    busy = others.cores()
    threads = min(times, key=lambda count: times[count])
    shown = ", ".join(f"{count}: {1000 * seconds:.2f} ms" for count, seconds in times.items())
    reason = f"a step of eight rows takes, by number of threads, {shown} ({cores.reason})"
    if busy > _BUSY:
        reason += f"; other programs were using {busy:.1f} cores, so this will be measured again"
    method = "turn"
    if on_gpu:
        by_method = tuning.measure_sampling(model, _workers("pool"))
        method = min(by_method, key=lambda name: by_method[name])
        reason += "; with sampling, " + ", ".join(
            f"{name}: {1000 * seconds:.2f} ms" for name, seconds in by_method.items()
        )
    return tuning.Tuned(
        threads=threads,
        step=times[threads],
        sampling=method,
        plain=plain,
        quiet=busy <= _BUSY,
        reason=reason,
    )


def _warn_if_slow(
    model: Model, tuned: tuning.Tuned, mapped: bool, emit: Callable[[Event], None]
) -> None:
    """Warn when a step takes far longer than a read of the weights from memory.

    The weights are then probably read from disk.
    """
    if not mapped or model.bytes < _BIG:
        return
    bound = model.bytes / machine.copy_bandwidth()
    if tuned.step > _SLOW_FACTOR * bound:
        times = tuned.step / bound
        emit(
            Note(
                f"memory is short: a step takes {tuned.step:.2f} s, {times:.0f} times as "
                "long as reading the weights"
            )
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
