"""Helion's emitted Triton as one dtype's part of a kernel file.

Helion gives kernels, constants, and a host function that launches by `_launcher(kernel, grid, ...)`.
The launch becomes `kernel[grid](...)`, and the host function `run`.
"""

from __future__ import annotations

import ast

from bench.emitted import LAUNCH_OPTIONS, Emitted, NotExtracted, Words, jit_function

_LAUNCHER = "_launcher"


def from_helion(text: str) -> Emitted:
    """The kernels and the launcher in a text of `to_triton_code`. Raises NotExtracted."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise NotExtracted(f"Helion's text is not Python: {error.msg}") from None
    words, kept, hosts = Words(), list[ast.stmt](), list[ast.FunctionDef]()
    for statement in tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.FunctionDef(decorator_list=[_, *_]):
                kept.append(jit_function(statement, words))
            case ast.FunctionDef():
                hosts.append(statement)
            case ast.Assign(targets=[ast.Name()]):
                kept.append(statement)
            case _:
                raise NotExtracted(f"Helion's text has `{_short(statement)}` at its top level")
    if len(hosts) != 1:
        raise NotExtracted(f"Helion's text has {len(hosts)} host functions, and one is expected")
    launcher = _Launches().visit(hosts[0])
    assert isinstance(launcher, ast.FunctionDef)
    launcher.name, launcher.returns = "run", None
    launcher.args.kwonlyargs, launcher.args.kw_defaults = [], []
    for argument in launcher.args.args:
        argument.annotation = None
    return Emitted(tuple(kept), launcher, frozenset(words.helpers))


class _Launches(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802
        """Write `_launcher(kernel, grid, *given, **options)` as `kernel[grid](*given, **options)`."""
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id == _LAUNCHER):
            return node
        kernel, grid, *given = node.args
        options = [one for one in node.keywords if not _means_nothing(one)]
        return ast.Call(ast.Subscript(kernel, grid, ast.Load()), given, options)


def _means_nothing(option: ast.keyword) -> bool:
    """Whether a launch option is off, such as `launch_cooperative_grid=False`."""
    off = isinstance(option.value, ast.Constant) and not option.value.value
    return off and option.arg not in LAUNCH_OPTIONS


def _short(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:60]
