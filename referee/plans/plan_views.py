"""Walking the views of a plan's steps, wherever they hide: targets, sources, arguments, tuples of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from referee.plans.plan import Copy, Fill, Launch, LaunchConfig, Step, Tuning, Value, View


def views_of(step: Step) -> Iterator[View]:
    """Every view a step reads or writes."""
    if isinstance(step, Fill):
        yield step.target
    elif isinstance(step, Copy):
        yield from (step.target, step.source)
    else:
        for config in step.configs:
            for argument in config.arguments:
                yield from views_in(argument.value)
        if step.tuning is not None:
            yield from (*step.tuning.zeroed, *step.tuning.restored)


def views_in(value: Value) -> Iterator[View]:
    """Every view inside one argument's value."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from views_in(item)


def with_views(step: Step, change: Callable[[View], View]) -> Step:
    """The same step with `change` applied to each of its views."""
    if isinstance(step, Fill):
        return replace(step, target=change(step.target))
    if isinstance(step, Copy):
        return Copy(change(step.target), change(step.source))
    tuning = step.tuning
    if tuning is not None:
        tuning = Tuning(tuple(map(change, tuning.zeroed)), tuple(map(change, tuning.restored)))
    return Launch(step.kernel, tuple(_config(config, change) for config in step.configs), tuning)


def _config(config: LaunchConfig, change: Callable[[View], View]) -> LaunchConfig:
    return replace(config, arguments=tuple(replace(argument, value=_value(argument.value, change)) for argument in config.arguments))


def _value(value: Value, change: Callable[[View], View]) -> Value:
    if isinstance(value, View):
        return change(value)
    return tuple(_value(item, change) for item in value) if isinstance(value, tuple) else value
