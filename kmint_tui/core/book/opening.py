"""Opens everything that a build or a new judgement of a book needs: the GPU, the smith, the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.book import store
from kmint_tui.book.records import Book
from kmint_tui.core.book.baselines import BaselineBuilders
from kmint_tui.core.book.building import Build
from kmint_tui.core.book.entries import versions_here
from kmint_tui.core.book.planning import check_shapes, plan, wanted_names
from kmint_tui.core.book.progress import BuildEvent
from kmint_tui.core.book.rejudging import Rejudged, rejudge
from kmint_tui.core.farm.devices import chosen, gpus, parse_gpus
from kmint_tui.core.farm.farm import AHEAD
from kmint_tui.core.judges import Opened, open_judge
from kmint_tui.core.measuring import cache, need_gpu, need_gpus
from kmint_tui.core.referee import MOST_THREADS, judge_threads

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from referee.sandbox.demand import Demand

Note = Callable[[str], None]


@dataclass(frozen=True)
class OpenedBuild:
    """A build that is ready to run, its device, and the number of kernels in the book."""

    build: Build
    device: str
    known: int


@contextmanager
def build_here(
    *,
    ops: tuple[str, ...],
    shapes: tuple[str, ...],
    dtype: str | None,
    budget: float | None,
    drafts: int,
    again: bool,
    farm: FarmAsked,
    demand: Demand,
    note: Note,
    tell: Callable[[BuildEvent], object],
) -> Iterator[OpenedBuild]:
    """A build on the GPUs here or of a cluster; `budget` is in minutes.

    Raises UsageError and EnvironmentUnfit.
    """
    from kmint_tui.history.store import History
    from kmint_tui.models import registry
    from kmint_tui.models.store import EMBEDDED, resolve
    from kmint_tui.smith import Options, Smith
    from kmint_tui.smith.engine import own_log

    names = wanted_names(ops)
    check_shapes(names, shapes, dtype)
    model = resolve(registry.load(paths.user_models_file()), EMBEDDED).file.path
    tuning = paths.private_dir(paths.cache_dir()) / "tuning.json"
    # The GPU times kernels meanwhile, so the smith drafts on the processor.
    options = Options(log=own_log(), tuning=tuning, gpu_layers=0, allow_cpu=True)
    with (
        History(paths.history_file()) as history,
        _opened(farm, demand, note) as (opened, device),
        Smith(model, options) as smith,
    ):
        rivals, _ = store.load(device)
        own = store.read("own", device)
        found = plan(names, shapes, dtype, own, versions=versions_here(), again=again)
        for text in found.notes:
            note(text)
        build = Build(
            opened=opened,
            smith=smith,
            history=history,
            device=device,
            work=found.work,
            drafts=drafts,
            rivals=rivals,
            tell=tell,
            builders=_builders(farm) if found.work else None,
            budget=None if budget is None else 60 * budget,
            at_once=_contests(farm, opened),
        )
        yield OpenedBuild(build, device, found.known)


def rejudge_here(
    *,
    ops: tuple[str, ...],
    farm: FarmAsked,
    demand: Demand,
    note: Note,
    on_found: Callable[[Rejudged], object],
) -> tuple[str, list[Rejudged]]:
    """The device and every entry judged again. Raises UsageError and EnvironmentUnfit."""
    names = wanted_names(ops)
    with _opened(farm, demand, note) as (opened, device):
        book: Book = store.load(device)[0]
        return device, rejudge(opened, book, names, on_found, _builders(farm))


@contextmanager
def _opened(farm: FarmAsked, demand: Demand, note: Note) -> Iterator[tuple[Opened, str]]:
    """The judge, and the name of its GPUs."""
    if farm.ray is None:
        need_gpu("a book")
    with open_judge(demand, note, threads=_threads(farm), asked=farm) as opened:
        need_gpus("a book", opened.farm)
        yield opened, opened.farm.device if opened.farm else gpus()[0].name


def _builders(farm: FarmAsked) -> BaselineBuilders | None:
    """Builders of baselines for the GPUs here; each host of a cluster builds those it needs."""
    return builders_here() if farm.ray is None else None


def _contests(farm: FarmAsked, opened: Opened) -> int | None:
    """Contests at once on a cluster, whose processors are not those of this host."""
    if farm.ray is None or opened.farm is None:
        return None
    return min(MOST_THREADS, AHEAD * opened.farm.places)


def builders_here() -> BaselineBuilders:
    """Builders of baselines for the first GPU here; the others are of its kind."""
    import pynvml

    from referee.timing.nvml import open_gpu

    memory = int(pynvml.nvmlDeviceGetMemoryInfo(open_gpu()).total)
    where = " ".join(map(str, (gpus()[0].name, *versions_here())))
    return BaselineBuilders(cache() / "baselines", memory, where)


def _threads(farm: FarmAsked) -> int:
    """Verdicts and races at once on this host."""
    count = 1 if farm.gpus is None else len(chosen(parse_gpus(farm.gpus), gpus()))
    return min(MOST_THREADS, judge_threads() * count)
