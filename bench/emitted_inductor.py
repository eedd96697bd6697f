"""Inductor's emitted Triton as one dtype's part of a kernel file.

A module of Inductor holds its kernels as texts, `name = async_compile.triton('name', TEXT)`, and a
function `call` that allocates and launches: `name.run(..., stream=...)`. The sizes of a block and
the launch options are no part of the text. Inductor's autotuner chooses them, so the caller gives
them as `Chosen`. Texts for dynamic shapes hold for all shapes; their sizes are read from the
tensors here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.emitted import Emitted, NotExtracted, Words, is_constant, jit_function

AXES = {"Grid1D": "x", "Grid2D": "xy", "Grid3D": "xyz"}
"""Axes of the grids of Inductor that a kernel file can have."""
INTEGERS = ("i32", "i64")


@dataclass(frozen=True)
class Chosen:
    """One kernel's launch as Inductor's autotuner chose it; `blocks` are constants by name."""

    blocks: Mapping[str, int]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class _Kernel:
    function: ast.FunctionDef
    grid: str

    @property
    def names(self) -> list[str]:
        """The parameters that are no constants."""
        return [one.arg for one in self.function.args.args if not is_constant(one)]

    @property
    def constants(self) -> list[str]:
        """The parameters that are constants."""
        return [one.arg for one in self.function.args.args if is_constant(one)]


def from_inductor(
    text: str, arguments: Sequence[str], chosen: Mapping[str, Chosen], dtype: str
) -> Emitted:
    """The kernels and the launcher in a module's text; `arguments` name the tensors of `run`.

    `chosen` has the launch of every kernel, `dtype` is that of the first tensor. Raises NotExtracted.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise NotExtracted(f"Inductor's text is not Python: {error.msg}") from None
    words = Words()
    kernels = {name: _kernel(name, source, words) for name, source in _sources(tree)}
    if not kernels:
        raise NotExtracted("Inductor emitted no Triton kernel")
    call = next((node for node in ast.walk(tree) if _is_call(node)), None)
    if not isinstance(call, ast.FunctionDef):
        raise NotExtracted("Inductor's text has no function `call`")
    body = _Host(kernels, arguments, chosen, dtype).body(call)
    launcher = ast.parse(f"def run({', '.join(arguments)}):\n    pass").body[0]
    assert isinstance(launcher, ast.FunctionDef)
    launcher.body = body
    functions = tuple(kernel.function for kernel in kernels.values())
    return Emitted(functions, launcher, frozenset(words.helpers))


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "call"


def _sources(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr=compiler),
                    args=[_, ast.Constant(value=str(source)), *_],
                ),
            ):
                if compiler != "triton":
                    raise NotExtracted(f"`{name}` is no Triton kernel but one of {compiler}")
                yield name, source


def _kernel(name: str, source: str, words: Words) -> _Kernel:
    """The kernel in its text: its function, and Inductor's name of its grid."""
    tree = ast.parse(source)
    function = next(
        (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name), None
    )
    if function is None:
        raise NotExtracted(f"the text of `{name}` does not define it")
    grids = [
        value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
        and key.value == "grid_type"
        and isinstance(value, ast.Constant)
    ]
    if len(grids) != 1 or grids[0] not in AXES:
        raise NotExtracted(f"the grid of `{name}` is {', '.join(map(str, grids)) or 'unnamed'}")
    integers = _integers(tree)
    kernel = _Kernel(jit_function(function, words), str(grids[0]))
    # Inductor compiles for the types of a signature, so no number becomes a constant where it is 1.
    numbers = [one for one in kernel.names if one in integers]
    if numbers:
        function.decorator_list = [
            ast.parse(f"triton.jit(do_not_specialize={numbers!r})", mode="eval").body
        ]
    return kernel


def _integers(tree: ast.Module) -> set[str]:
    """The parameters that are integers, from the signature in the text."""
    return {
        str(key.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
        and isinstance(value, ast.Constant)
        and value.value in INTEGERS
    }


class _Host:
    """Writes the statements of `call` as those of a launcher."""

    def __init__(
        self,
        kernels: Mapping[str, _Kernel],
        arguments: Sequence[str],
        chosen: Mapping[str, Chosen],
        dtype: str,
    ) -> None:
        self._kernels, self._arguments, self._chosen = kernels, arguments, chosen
        self._dtype = f"torch.{dtype}"
        self._tensors: dict[str, str] = {}
        self._sizes: set[str] = set()
        self._known: set[str] = set()

    def body(self, call: ast.FunctionDef) -> list[ast.stmt]:
        """The launcher's statements. Raises NotExtracted."""
        given: list[str] = []
        lines: list[str] = []
        for statement in _flat(call.body):
            match statement:
                case ast.Assign(targets=[target], value=ast.Name(id="args")):
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    given = [ast.unparse(one) for one in names]
                case ast.Assign(targets=[ast.Name(id=size)], value=ast.Name(id=of)) if of in given:
                    given[given.index(of)] = ""
                    self._sizes.add(size)
                case _ if not _is_nothing(statement):
                    if not self._tensors:
                        self._name(given)
                    lines += self._lines(statement)
        return ast.parse("\n".join(lines)).body

    def _name(self, given: Sequence[str]) -> None:
        """Give the tensors among the arguments of `call` the names of the operation's arguments."""
        tensors = [name for name in given if name]
        if len(tensors) != len(self._arguments):
            raise NotExtracted(
                f"`call` takes {len(tensors)} tensors, and the operation {len(self._arguments)}"
            )
        self._tensors = dict(zip(tensors, self._arguments, strict=True))

    def _lines(self, statement: ast.stmt) -> list[str]:
        renamed = _Tensors(self._tensors).visit(statement)
        match renamed:
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_size_stride"), args=given)):
                return self._size(given)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="empty_strided_cuda"), args=[size, stride, dtype]),
            ):
                of = ast.unparse(dtype)
                of = f"{self._arguments[0]}.dtype" if of == self._dtype else of
                where = f"device={self._arguments[0]}.device"
                made = f"{ast.unparse(size)}, {ast.unparse(stride)}, dtype={of}, {where}"
                return [f"{name} = torch.empty_strided({made})"]
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[of, size, stride, at]),
            ) if _is_plain(size, stride) and ast.unparse(at) == "0":
                return [f"{name} = {ast.unparse(of)}.view({ast.unparse(size)})"]
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="run"), args=given)
            ) if name in self._kernels:
                return [self._launch(name, given)]
            case ast.Assign(targets=[ast.Name()], value=value) if _is_arithmetic(value):
                return [ast.unparse(renamed)]
            case ast.Return(value=ast.Tuple(elts=[one])):
                return [f"return {ast.unparse(one)}"]
        raise NotExtracted(f"host code `{ast.unparse(statement).partition(chr(10))[0][:80]}`")

    def _size(self, given: Sequence[ast.expr]) -> list[str]:
        """Read sizes from a tensor, and assert that it is contiguous, as the emitted text does."""
        match given:
            case [ast.Name(id=name), ast.Tuple(elts=sizes) as size, stride, *_] if _is_plain(
                size, stride
            ):
                found = []
                for number, one in enumerate(sizes):
                    text = ast.unparse(one)
                    if text in self._sizes - self._known:
                        self._known.add(text)
                        found.append(f"{text} = {name}.shape[{number}]")
                    else:
                        found.append(f"assert {name}.shape[{number}] == {text}")
                return [*found, f"assert {name}.is_contiguous()"]
        raise NotExtracted("an input of the emitted text is not contiguous")

    def _launch(self, name: str, given: Sequence[ast.expr]) -> str:
        kernel = self._kernels[name]
        if name not in self._chosen:
            raise NotExtracted(f"the launch of `{name}` is not known")
        chosen, values = (
            self._chosen[name],
            dict(zip(kernel.names, map(ast.unparse, given), strict=False)),
        )
        if set(kernel.constants) - set(chosen.blocks):
            raise NotExtracted(f"the launch of `{name}` has no value for a constant of the kernel")
        sizes = []
        for axis in AXES[kernel.grid]:
            block = chosen.blocks.get(f"{axis.upper()}BLOCK", 1)
            sizes.append(f"triton.cdiv({values[f'{axis}numel']}, {block})")
        options = {**{one: chosen.blocks[one] for one in kernel.constants},
                   "num_warps": chosen.num_warps, "num_stages": chosen.num_stages}  # fmt: skip
        words = [*values.values(), *(f"{one}={value}" for one, value in options.items())]
        return f"{name}[({', '.join(sizes)},)]({', '.join(words)})"


class _Tensors(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:  # noqa: N802
        """Rename a tensor among the arguments."""
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, also those under a device guard."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _is_nothing(statement: ast.stmt) -> bool:
    """Whether the statement only frees names, checks alignment, or chooses a device or a stream."""
    if isinstance(statement, ast.Delete):
        return True
    text = ast.unparse(statement)
    return (
        text == "args.clear()"
        or text.startswith(("torch.cuda.set_device(", "assert_alignment("))
        or "get_raw_stream(" in text
    )


def _is_plain(size: ast.expr, stride: ast.expr) -> bool:
    """Whether the strides are those of a contiguous tensor of that size."""
    if not (isinstance(size, ast.Tuple) and isinstance(stride, ast.Tuple)):
        return False
    sizes, strides = ([ast.unparse(one) for one in two.elts] for two in (size, stride))
    if len(sizes) != len(strides):
        return False
    return all(
        found in (_product(sizes[number + 1 :]), "1" if number + 1 == len(sizes) else "")
        or sizes[number] == "1"
        for number, found in enumerate(strides)
    )


def _product(sizes: Sequence[str]) -> str:
    """The product of sizes as Inductor writes it."""
    numbers = [one for one in sizes if one != "1"]
    if all(one.isdigit() for one in numbers):
        whole = 1
        for one in numbers:
            whole *= int(one)
        return str(whole)
    return "*".join(numbers) if len(numbers) == 1 else " * ".join(numbers)


def _is_arithmetic(value: ast.expr) -> bool:
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.operator, ast.expr_context)
    return all(isinstance(node, allowed) for node in ast.walk(value))
