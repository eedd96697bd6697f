"""Makes Inductor use the choices of configurations that it has stored, as it does since torch 2.12.

With `max-autotune` Inductor times configurations, then neighbours of the fastest, and stores its
choice. torch 2.11 reads the choice of a cached kernel, but forgets that neighbours were tried. So
every new process compiles and times them again, for seconds a kernel, and may choose another one.

The change is to a private function of Inductor. Where that function differs, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SETTLED = "found_by_coordesc"
"""The mark of a configuration whose neighbours were tried."""


def keep_choices() -> None:
    """Change this process's Inductor; a second call does nothing. Imports Inductor."""
    try:
        from torch._inductor.runtime import triton_heuristics
        from torch._inductor.runtime.runtime_utils import triton_config_to_hashable

        change(
            triton_heuristics.CachingAutotuner,
            triton_heuristics.check_autotune_cache,
            triton_config_to_hashable,
        )
    except (ImportError, AttributeError):
        return


def change(
    tuners: Any, stored: Callable[..., tuple[Sequence[Any], Any, Any]], name: Callable[[Any], Any]
) -> None:
    """Change the class of kernels that are tuned.

    `stored` gives the stored choice among configurations, and `name` equal values for equal ones.
    """
    recheck = tuners.recheck_autotune_cache
    if getattr(recheck, "keeps_choices", False):
        return

    def kept(self: Any, reload_kernel_from_src: Callable[[], Any]) -> None:
        configs = [one.config for one in self.compile_results]
        recheck(self, reload_kernel_from_src)
        try:
            _settle(self, configs, reload_kernel_from_src, stored, name)
        except Exception:  # a private function of Inductor; without the change it tunes again
            return

    kept.keeps_choices = True  # type: ignore[attr-defined]
    tuners.recheck_autotune_cache = kept


def _settle(
    tuner: Any,
    configs: Sequence[Any],
    reload: Callable[[], Any],
    stored: Callable[..., tuple[Sequence[Any], Any, Any]],
    name: Callable[[Any], Any],
) -> None:
    """Leave the stored choice alone in a kernel, if its neighbours were tried."""
    found, _, _ = stored(configs, tuner.filename, tuner.inductor_meta)
    if len(found) != 1 or not getattr(found[0], SETTLED, False):
        return
    (best,) = found
    same = [one for one in tuner.compile_results if name(one.config) == name(best)]
    if not same:
        if tuner.fn.fn is None:
            tuner.fn = reload().fn
        same = [tuner._precompile_config(best)]
    setattr(same[0].config, SETTLED, True)
    tuner.compile_results = same[:1]
