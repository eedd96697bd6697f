"""One reduction of a random function, or one of the usual compositions with it."""

from __future__ import annotations

from forge.chain import Chain, runs_over
from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.aten.norms import normalized
from kmint_tui.graph.aten.pointwise import binary, unary, where
from kmint_tui.graph.aten.reductions import log_softmax, logsumexp, softmax, variance
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value

_FORMS = {
    "sum": 12, "mean": 12, "max": 8, "min": 3, "rms": 10, "norm": 8, "softmax": 9, "log_softmax": 6,
    "var": 5, "logsumexp": 4, "scan": 4, "argmax": 2, "l2": 5, "l1": 3, "prod": 1, "pick": 6,
    "count": 2,
}  # fmt: skip
"""Reductions by their weights."""


def reduce(chain: Chain) -> None:
    """Draw a reduction along the layout's dimensions, if a value has elements there."""
    rng, places = chain.rng, list(chain.layout.places)
    wide = [one for one in chain.pool if runs_over(one, places) and one.kind == "f"]
    if not wide:
        return
    fresh = [one for one in chain.unused if any(one is other for other in wide)]
    x = rng.choice(fresh[-3:]) if fresh and rng.random() < 0.7 else rng.choice(wide[-4:])
    form = rng.choices(tuple(_FORMS), tuple(_FORMS.values()))[0]
    if form == "pick" and len(places) == 1:
        made = _picked(chain, x, places[0])
    elif form == "count":
        inside = binary(rng.choice(("gt", "lt", "ne", "ge")), x, chain.constant())
        made = v.to_float(v.reduce("sum", v.pointwise("to_int", inside), places, keep=True))
    elif len(places) == 1:
        made = _along_one(chain, form, x, places[0])
    else:
        made = _along_several(chain, form, x, places)
    chain.keep(made, x)


def _picked(chain: Chain, x: Value, place: int) -> Value:
    """One element of each row, by a tensor of labels; now and then a label is left out."""
    rng = chain.rng
    sizes = [Size.of(1) if number == place else size for number, size in enumerate(x.sizes)]
    labels = chain.drawn.tensor(sizes, "int64")
    if rng.random() < 0.4:
        kept = binary("ne", labels, rng.choice((-100, -1, 0)))
        found = views.take(x, place, where(kept, labels, 0))
        return where(kept, unary("neg", found) if rng.random() < 0.7 else found, 0.0)
    return views.take(x, place, labels)


def _along_one(chain: Chain, form: str, x: Value, place: int) -> Value:
    """A reduction along one dimension; only one allows scans, softmax and argmax."""
    rng = chain.rng
    match form:
        case "softmax":
            return softmax(x, place)
        case "log_softmax":
            return log_softmax(x, place)
        case "argmax":
            return v.reduce(rng.choice(("argmax", "argmin")), x, [place], keep=True)
        case "scan":
            made = v.scan(rng.choice(("cumsum", "cumsum", "cumprod")), x, place)
            if rng.random() < 0.3:
                return views.flip(v.scan("cumsum", views.flip(x, place), place), place)
            return made
    return _along_several(chain, form, x, [place])


def _along_several(chain: Chain, form: str, x: Value, places: list[int]) -> Value:
    rng = chain.rng
    match form:
        case "sum" | "max" | "min" | "prod":
            return v.reduce(form, x, places, keep=True)
        case "argmax":
            return v.reduce("max", x, places, keep=True)
        case "rms":
            square = v.mean(binary("mul", x, x), places, keep=True)
            eps = abs(chain.constant()) * 1e-3
            return binary("mul", x, unary("rsqrt", binary("add", square, eps)))
        case "l2":
            norm = unary("sqrt", v.reduce("sum", binary("mul", x, x), places, keep=True))
            if rng.random() < 0.5:
                return binary("div", x, binary("maximum", norm, 1e-12))
            return binary("div", x, binary("add", norm, abs(chain.constant())))
        case "l1":
            return binary("div", x, v.mean(unary("abs", x), places, keep=True))
        case "norm":
            return normalized(x, places, abs(chain.constant()) * 1e-3)[0]
        case "var":
            spread = variance(x, places, True, correction=rng.choice((0, 1)))
            return unary("sqrt", spread) if rng.random() < 0.5 else spread
        case "logsumexp":
            return logsumexp(x, places, True)
    return v.mean(x, places, keep=True)
