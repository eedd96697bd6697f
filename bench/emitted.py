"""Kernel files out of the Triton that a compiler emitted: kernels, helpers, and a launcher `run`.

A compiler emits one text for each dtype. `kernel_file` puts such texts together: `run` takes the
text of its first argument's dtype. `emitted_inductor` and `emitted_helion` read the texts. The
kernels stay as they were emitted. Names get the dtype at their end. Functions of the compilers'
modules of helpers are copied from the installed version.

Nothing of an emitted text is run. Limits: a text with other host code than allocations, views and
launches is refused.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HELPERS = {
    "triton_helpers": "torch._inductor.runtime.triton_helpers",
    "helion_triton_helpers": "helion.runtime.triton.helpers",
}
"""Modules of helpers, by their names in emitted texts. A copied helper has this name before its
own, so that it is not the name of something else.
"""
HEADER = (
    "import torch\nimport triton\nimport triton.language as tl\n"
    "from triton.language.extra import libdevice\n"
)
LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages"})
SIMPLER = {"is_floating": "def is_floating(x):\n    return x.dtype.is_floating()\n"}
"""Helpers in a form that means the same for tensors. The referee's interpreter cannot run the
original, which adds a block to its argument, in the combining function of a reduction.
"""
_MODULES = {"tl_math": "tl.math", "math": "tl.math"}
"""Names of Triton's modules in emitted texts and helpers, and the names in a kernel file."""


class NotExtracted(ValueError):
    """The emitted text cannot become a kernel file; the message says why."""


@dataclass(frozen=True)
class Emitted:
    """A text for one dtype: constants and kernels, the launcher, and the helpers that they call.

    The launcher is called `run` and takes the operation's tensors in order.
    """

    kernels: tuple[ast.stmt, ...]
    launcher: ast.FunctionDef
    helpers: frozenset[str]


def kernel_file(about: str, arguments: Sequence[str], texts: Mapping[str, Emitted]) -> str:
    """One kernel file of the texts by dtype (`float16`); `about` is its first line.

    Raises NotExtracted for a helper that the installed torch lacks.
    """
    parts = [f'"""{about}"""\n', HEADER]
    parts += helper_texts(frozenset().union(*(text.helpers for text in texts.values())))
    for dtype, text in texts.items():
        parts += [_unparsed(part) for part in _suffixed(text, dtype)]
    given = ", ".join(arguments)
    choices = "".join(
        f"    if {arguments[0]}.dtype == torch.{dtype}:\n        return run_{dtype}({given})\n"
        for dtype in texts
    )
    known = ", ".join(texts)
    parts.append(f'def run({given}):\n{choices}    raise TypeError("it was emitted for {known}")\n')
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _suffixed(text: Emitted, dtype: str) -> list[ast.stmt]:
    """Copies of the text's statements, with the dtype at the end of every top-level name."""
    statements = [*text.kernels, text.launcher]
    own = {name for statement in statements for name in _bound(statement)}
    renamed = [
        _Renamed(own, f"_{dtype}").visit(ast.parse(ast.unparse(statement)).body[0])
        for statement in statements
    ]
    return [statement for statement in renamed if isinstance(statement, ast.stmt)]


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Collection[str], end: str) -> None:
        self._names, self._end = names, end

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:  # noqa: N802
        """Rename a function of the top level, and everything in it."""
        node.name += self._end
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:  # noqa: N802
        """Rename a use."""
        if node.id in self._names:
            node.id += self._end
        return node


class Words(ast.NodeTransformer):
    """Replaces words of a compiler's runtime by those of a kernel file; `helpers` are those it saw,
    as `triton_helpers.maximum`.

    Names in `plain` are helpers of `module` that stand without it.
    """

    def __init__(self, module: str = "", plain: Collection[str] = ()) -> None:
        self._module, self._plain, self.helpers = module, plain, set[str]()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # noqa: N802
        """Replace `triton_helpers.maximum`, `tl_math.abs` and the like."""
        if isinstance(node.value, ast.Name) and node.value.id in HELPERS:
            return self._helper(node.value.id, node.attr, node.ctx)
        if isinstance(node.value, ast.Name) and node.value.id in _MODULES:
            node.value = ast.parse(_MODULES[node.value.id], mode="eval").body
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802
        """Replace the bare name of a helper, inside of another helper."""
        return self._helper(self._module, node.id, node.ctx) if node.id in self._plain else node

    def _helper(self, module: str, name: str, context: ast.expr_context) -> ast.Name:
        self.helpers.add(f"{module}.{name}")
        return ast.Name(f"{module}_{name}", context)


def jit_function(node: ast.FunctionDef, words: Words) -> ast.FunctionDef:
    """The function with `@triton.jit` as its only decorator, and in words of a kernel file."""
    node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    node.returns = None
    for argument in (*node.args.posonlyargs, *node.args.args):
        if not is_constant(argument):
            argument.annotation = None
    changed = words.visit(node)
    assert isinstance(changed, ast.FunctionDef)
    return changed


def is_constant(argument: ast.arg) -> bool:
    """Whether a kernel's parameter is known at compile time."""
    return argument.annotation is not None and ast.unparse(argument.annotation) == "tl.constexpr"


def helper_texts(wanted: Collection[str]) -> list[str]:
    """The texts of helpers and of those that they call, the called ones first.

    Raises NotExtracted.
    """
    texts: dict[str, str] = {}

    def take(wanted: str, callers: tuple[str, ...]) -> None:
        if wanted in texts or wanted in callers:
            return
        module, _, name = wanted.partition(".")
        known = _known(module)
        if name not in known:
            raise NotExtracted(f"the installed version has no helper {wanted}")
        source = SIMPLER.get(name) or textwrap.dedent(inspect.getsource(known[name].fn))
        (node,) = ast.parse(source).body
        assert isinstance(node, ast.FunctionDef)
        words = Words(module, known)
        node.name = f"{module}_{name}"
        text = _unparsed(jit_function(node, words))
        for called in sorted(words.helpers):
            take(called, (*callers, wanted))
        texts[wanted] = text

    for name in sorted(wanted):
        take(name, ())
    return list(texts.values())


def _known(module: str) -> dict[str, Any]:
    """The helpers of a module by name; empty where it cannot be imported."""
    try:
        found = importlib.import_module(HELPERS[module])
    except ImportError:
        return {}
    return {name: value for name, value in vars(found).items() if hasattr(value, "fn")}


def _unparsed(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
