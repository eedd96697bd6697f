"""The code around the judged part for a user's own reference: it refuses inputs that were not
judged.

Sizes that were judged at several numbers stay symbols. The wrapper binds them, flattens leading
dimensions and expands operands where the reference does.

It registers no op: the reference is not saved with the kernel, so nothing could run on the CPU.
`torch.compile` traces the plain function. Its arguments have the reference's names, which may be
any names, so its body uses only them and one function, which takes them as tuples.
"""

from __future__ import annotations

import json

from kmint_tui.save.direct_call import MOST_KEPT
from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.own_reference import Argument, Judged, Number, Range, Signature, Size

CHECKED = "_checked_run"

_CHECKS = '''_PLAIN = (Tensor, torch.nn.Parameter)
# The entry of JUDGED, the flattened dimensions and the shapes of calls that passed the checks.
_KEPT: dict[tuple, tuple] = {{}}
_MOST_KEPT = {most_kept}


def {checked}(
    tensors: tuple[Tensor, ...], numbers: tuple[float, ...]
) -> Tensor | tuple[Tensor, ...]:
    key = None if torch.compiler.is_compiling() else _key(tensors, numbers)
    kept = None if key is None else _KEPT.get(key)
    if kept is None:
        chosen, shaped, lead = _checked(tensors, numbers)
        # A tensor that was expanded is a copy, which each call needs again.
        if key is not None and all(
            one.data_ptr() == other.data_ptr() for one, other in zip(tensors, shaped)
        ):
            if len(_KEPT) >= _MOST_KEPT:
                _KEPT.clear()
            _KEPT[key] = (chosen, lead, tuple(tuple(one.shape) for one in shaped))
    else:
        chosen, lead, shapes = kept
        shaped = tensors
        if len(lead) > 1:
            shaped = tuple(one.view(shape) for one, shape in zip(tensors, shapes))
    with torch.cuda.device(tensors[0].device):
        result = {entry}({arguments})
    return _unflattened(result, chosen, lead)


def _key(tensors: tuple[Tensor, ...], numbers: tuple[float, ...]) -> tuple | None:
    """All that the checks read; None for other objects than tensors, and for subclasses."""
    read: list[object] = [torch.is_grad_enabled(), *map(type, numbers)]
    for one in tensors:
        if type(one) not in _PLAIN:
            return None
        read += (one.shape, one.dtype, one.device, one.is_contiguous(), one.requires_grad)
    return tuple(read)


def _checked(
    tensors: tuple[Tensor, ...], numbers: tuple[float, ...]
) -> tuple[tuple, tuple[Tensor, ...], tuple[int, ...]]:
    """What _fitting() returns. Raises TypeError or ValueError for what was not judged."""
    for name, tensor in zip(TENSORS, tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{{name}} must be a torch.Tensor, not {{type(tensor).__name__}}")
    for name, number in zip(NUMBERS, numbers):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{{name}} must be a number, not {{type(number).__name__}}")
    chosen, shaped, lead = _fitting(tensors)
    if chosen is None:
        raise _not_judged(tensors)
    for name, tensor in zip(TENSORS, tensors):
        if tensor.device.type != "cuda" or tensor.device != tensors[0].device:
            first, place = TENSORS[0], tensor.device
            raise ValueError(f"{{name}} must be on the same GPU as {{first}}, not on {{place}}")
        if not tensor.is_contiguous():
            raise ValueError(f"{{name}} must be contiguous; pass {{name}}.contiguous()")
        if tensor.numel() > MAX_ELEMENTS:
            raise ValueError(f"{{name}} must have at most {{MAX_ELEMENTS}} elements, as judged")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError("{public} has no backward: call it under torch.no_grad()")
    return chosen, shaped, lead


def _fitting(
    tensors: tuple[Tensor, ...]
) -> tuple[tuple | None, tuple[Tensor, ...], tuple[int, ...]]:
    """The entry of JUDGED that fits, the tensors in its shapes, and the flattened dimensions."""
    for judged in JUDGED:
        shaped, lead = _shaped(tensors, judged)
        if shaped is not None:
            return judged, shaped, lead
    return None, tensors, ()


def _shaped(
    tensors: tuple[Tensor, ...], judged: tuple
) -> tuple[tuple[Tensor, ...] | None, tuple[int, ...]]:
    """The tensors in the shapes of one entry, None where they do not fit; leading dimensions."""
    shapes, sizes, leading, _, broadcast = judged
    if not all(tensor.dtype == dtype for tensor, (_, dtype) in zip(tensors, shapes)):
        return None, ()
    lead: tuple[int, ...] = ()
    if leading:
        leads = [
            tuple(tensor.shape)[: 1 - len(dims) or None]
            for tensor, (dims, _) in zip(tensors, shapes)
            if dims[:1] == (leading,)
        ]
        lead = max(leads, key=len, default=())
        if len(lead) == 0:
            return None, ()
        if len(lead) > 1:
            flat = []
            for tensor, (dims, _) in zip(tensors, shapes):
                if dims[:1] == (leading,) and tuple(tensor.shape)[: len(lead)] == lead:
                    flat.append(tensor.reshape(-1, *tensor.shape[len(lead) :]))
                else:
                    flat.append(tensor)
            tensors = tuple(flat)
    found: dict[str, int] = {{}}
    for number, (tensor, (dims, _)) in enumerate(zip(tensors, shapes)):
        if not _bind(found, tuple(tensor.shape), dims, number in broadcast):
            return None, ()
    for symbol, (least, most, multiple) in sizes.items():
        size = found.setdefault(symbol, 1)
        if size < least or size % multiple or (most is not None and size > most):
            return None, ()
    fitted = []
    for number, (tensor, (dims, _)) in enumerate(zip(tensors, shapes)):
        wanted = tuple(_size(dim, found) for dim in dims)
        if tuple(tensor.shape) != wanted:
            if number not in broadcast or not _expands(tuple(tensor.shape), wanted):
                return None, ()
            tensor = tensor.expand(wanted).contiguous()
        fitted.append(tensor)
    return tuple(fitted), lead


def _bind(found: dict[str, int], shape: tuple[int, ...], dims: tuple, expands: bool) -> bool:
    """Note the sizes of symbols; False where the shape has other dimensions.

    One that expands may lack the first, or have one case.
    """
    if len(shape) > len(dims) or (len(shape) < len(dims) and not expands):
        return False
    for size, dim in zip(reversed(shape), reversed(dims)):
        if expands and size == 1:
            continue
        if isinstance(dim, str) and found.setdefault(dim, size) != size:
            return False
        if isinstance(dim, tuple) and dim[0] not in found:
            symbol, times, over, plus = dim
            found[symbol] = (size - plus) * over // times
    return True


def _size(dim: int | str | tuple, found: dict[str, int]) -> int:
    """The size of a dimension of JUDGED: a number, a symbol, or (symbol, times, over, plus)."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return found[dim]
    symbol, times, over, plus = dim
    size: int = times * found[symbol] // over + plus
    return size


def _expands(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(wanted))
    return len(shape) <= len(wanted) and all(size == 1 or size == want for size, want in pairs)


def _unflattened(
    result: Tensor | tuple[Tensor, ...], judged: tuple, lead: tuple[int, ...]
) -> Tensor | tuple[Tensor, ...]:
    if len(lead) < 2:
        return result
    outputs = result if isinstance(result, tuple) else (result,)
    shaped = tuple(
        one.reshape(*lead, *one.shape[1:]) if follows else one
        for one, follows in zip(outputs, judged[3])
    )
    return shaped if isinstance(result, tuple) else shaped[0]


def _not_judged(tensors: tuple[Tensor, ...]) -> TypeError | ValueError:
    """The fault of tensors that fit no entry of JUDGED."""
    for position, (name, tensor) in enumerate(zip(TENSORS, tensors)):
        dtypes = sorted({{str(judged[0][position][1]) for judged in JUDGED}})
        if str(tensor.dtype) not in dtypes:
            wanted = " or ".join(dtypes)
            return TypeError(f"{{name}} is {{tensor.dtype}}; the kernel was judged with {{wanted}}")
        if not any(_alone(tensor, position, judged) for judged in JUDGED):
            shapes = " or ".join(sorted({{_written(judged[0][position][0]) for judged in JUDGED}}))
            return ValueError(
                f"{{name}} has shape {{tuple(tensor.shape)}};"
                f" the kernel was judged with {{shapes}}{{_ranges()}}"
            )
    found = ", ".join(
        f"{{name}} {{tuple(tensor.shape)}} {{tensor.dtype}}"
        for name, tensor in zip(TENSORS, tensors)
    )
    return ValueError(
        f"the kernel was not judged with these together: {{found}}; see JUDGED{{_ranges()}}"
    )


def _alone(tensor: Tensor, position: int, judged: tuple) -> bool:
    """Whether the tensor alone could be that of an entry."""
    shapes, sizes, leading, _, broadcast = judged
    dims = shapes[position][0]
    shape = tuple(tensor.shape)
    if leading and dims[:1] == (leading,) and len(shape) > len(dims):
        shape = (1, *shape[len(shape) - len(dims) + 1 :])
    found: dict[str, int] = {{}}
    if not _bind(found, shape, dims, position in broadcast):
        return False
    fixed = ((size, dim) for size, dim in zip(shape, dims) if isinstance(dim, int))
    if position not in broadcast and any(dim != size for size, dim in fixed):
        return False
    for symbol, size in found.items():
        least, most, multiple = sizes[symbol]
        if not least <= size <= (most or size) or size % multiple:
            return False
    return True


def _written(dims: tuple) -> str:
    names = [
        f"{{dim[1]}}*{{dim[0]}}/{{dim[2]}}{{dim[3]:+d}}" if isinstance(dim, tuple) else str(dim)
        for dim in dims
    ]
    return f"({{', '.join(map(str, names))}}{{',' if len(names) == 1 else ''}})"


def _ranges() -> str:
    known = {{symbol: span for judged in JUDGED for symbol, span in judged[1].items()}}
    words = [
        f"{{symbol}} from {{least}} to {{most or 'any size'}}"
        f"{{f', a multiple of {{by}}' if by > 1 else ''}}"
        for symbol, (least, most, by) in known.items()
    ]
    return f"; {{', '.join(words)}}" if words else ""
'''


def judged_constants(judged: Judged) -> str:
    """The limits that the checks enforce."""
    entries = [_entry(signature, judged.tensors) for signature in judged.signatures]
    return "\n".join(
        [
            f"ARGUMENTS = {_tuple([json.dumps(name) for name in judged.names])}",
            f"TENSORS = {_tuple([json.dumps(name) for name in judged.tensors])}",
            f"NUMBERS = {_tuple([json.dumps(number.name) for number in judged.numbers])}",
            f"MAX_ELEMENTS = {2**31 - 1}",
            "# The inputs that the referee judged; all others are refused. Each entry has the "
            "shape and",
            "# dtype of every tensor, in which a name is a size that was judged at several "
            "numbers; the",
            "# least, the most and the step of these sizes; the size that may be several leading",
            "# dimensions; the outputs that follow it; the tensors that may have one case for all.",
            "JUDGED: tuple[tuple, ...] = (",
            *(f"    {entry}," for entry in entries),
            ")",
            "",
        ]
    )


def _entry(signature: Signature, names: tuple[str, ...]) -> str:
    tensors = _tuple([_argument(one) for one in signature.tensors])
    sizes = ", ".join(f"{json.dumps(symbol)}: {_range(one)}" for symbol, one in signature.sizes)
    leading = signature.leading
    symbol, outputs = (leading.symbol, leading.outputs) if leading else ("", ())
    broadcast = tuple(names.index(name) for name in sorted(signature.broadcast, key=names.index))
    return f"({tensors}, {{{sizes}}}, {json.dumps(symbol)}, {outputs!r}, {broadcast!r})"


def _range(one: Range) -> str:
    return f"({one.least}, {one.most}, {one.multiple})"


def user_wrapper(judged: Judged, name: str, entry: str) -> str:
    """The code after the judged part.

    Raises NotSaveable for an argument with the name of the function behind the public one.
    """
    if CHECKED in judged.names:
        raise NotSaveable(
            f"`{CHECKED}` is a name that the saved file needs itself",
            fix="give that argument of the reference another name",
        )
    numbers = {number.name: number for number in judged.numbers}
    typed = ", ".join(_typed(one, numbers, judged.names) for one in judged.names)
    places = {one: f"shaped[{place}]" for place, one in enumerate(judged.tensors)}
    places |= {one: f"numbers[{place}]" for place, one in enumerate(numbers)}
    checks = _CHECKS.format(
        checked=CHECKED,
        public=name,
        entry=entry,
        most_kept=MOST_KEPT,
        arguments=", ".join(places[one] for one in judged.names),
    )
    return f'''{checks}

def {name}({typed}) -> Tensor | tuple[Tensor, ...]:
    """Contiguous CUDA tensors, as in JUDGED.

    Raises TypeError or ValueError naming the argument that is wrong.
    """
    return {CHECKED}({_tuple(list(judged.tensors))}, {_tuple(list(numbers))})
'''


def _typed(name: str, numbers: dict[str, Number], names: tuple[str, ...]) -> str:
    """The parameter, with its default if all later parameters have one."""
    if name not in numbers:
        return f"{name}: Tensor"
    number = numbers[name]
    after = names[names.index(name) :]
    kind = type(number.values[0]).__name__
    if all(one in numbers and numbers[one].default is not None for one in after):
        return f"{name}: {kind} = {number.default!r}"
    return f"{name}: {kind}"


def _argument(one: Argument) -> str:
    return f"({_tuple([_written(size) for size in one.shape])}, torch.{one.dtype})"


def _written(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    if (size.times, size.over, size.plus) == (1, 1, 0):
        return json.dumps(size.symbol)
    return f"({json.dumps(size.symbol)}, {size.times}, {size.over}, {size.plus})"


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
