"""The judged part of a saved file: clean kernels, their constants and the host functions, renamed.

It stands between two marker lines, with its entry last. A file that chooses by shape has one such
part for each kernel, and the entries `_run_1`, `_run_2`. The referee judges exactly this text with
two changes undone: `wrap_triton(kernel)`, which only announces a launch to `torch.compile`, and the
name of the entry. So a user can judge a saved file again from its own text.

Where `torch.compile` traces the host code, comparisons find the block size. A compiled graph then
serves every size up to its block. The bit arithmetic of `triton.next_power_of_2` would compile one
graph for each size and soon reach the limit.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kmint_tui.errors import UsageError
from kmint_tui.save.host_code import ENTRY, HostCode, NotSaveable
from referee.reading.allowed_words import RESERVED
from referee.reading.constants import canonical_node
from referee.reading.names import dotted
from referee.reading.source import parse, tree_of

BEGIN = "# ---- judged by the referee: begin ----"
END = "# ---- judged by the referee: end ----"
ENTRY_NAME = "_run"
BLOCK_SIZE = "_next_power_of_2"

_BLOCK_SIZE_CODE = f"""
def {BLOCK_SIZE}(size):
    power = 1
    for _ in range(63):
        if size <= power:
            return power
        power *= 2
    raise ValueError("size must be below 2**63")
"""

# Names that the other code of a saved file binds; the caller adds the operation's own name.
_TAKEN = frozenset(
    f"{BLOCK_SIZE} _check _check_layout _check_tensor _checked_run _cpu _fake _backward _keep "
    "_not_judged _op _row_gap _usual _vmap reference".split()
    + "_alone _bind _checked _expands _fitting _ranges _shaped _size _unflattened _written".split()
    + "ARGUMENTS COLUMNS DTYPES JUDGED MAX_COLUMNS MAX_ELEMENTS NUMBERS SHAPES TENSORS".split()
    + "_BY_DTYPE _Shape _kernel_for _shapes_of".split()
    + "_KEPT _MOST_KEPT _PLAIN _Thread _kernel_of _key _launched _seen _thread".split()
)
_NUMBERED = re.compile(rf"{ENTRY_NAME}_\d+")
_OPTIONAL_IMPORTS = {
    "math": "import math",
    "libdevice": "from triton.language.extra import libdevice",
}


class NoJudgedPart(UsageError):
    """A file without the part that kmint wrote into it."""

    title = "not a kernel saved by kmint"


@dataclass(frozen=True)
class JudgedPart:
    """The text between the markers, and its imports except torch, triton and triton.language."""

    text: str
    imports: tuple[str, ...]
    entry: str = ENTRY_NAME

    @property
    def candidate(self) -> str:
        """The text to judge."""
        return _candidate(self.text)[1]


def build(code: HostCode, *, public: str, wrap: bool, suffix: str = "") -> JudgedPart:
    """The judged part of a checked source. Raises NotSaveable.

    `public` is the name of the saved file's function. `wrap` announces launches to `torch.compile`,
    as `triton_op` needs. Every name ends in `suffix`, so that several parts fit in one file.
    """
    clean = tree_of(code.kernels.text).body
    constants = {
        node.targets[0].id: node
        for node in clean
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    kernels = [node for node in clean if isinstance(node, ast.FunctionDef)]
    hosts = _reachable(code, {kernel.name for kernel in kernels})
    for name in _constants(hosts, code):
        constants.setdefault(
            name, ast.Assign([ast.Name(name, ast.Store())], code.scope.assigned[name], lineno=1)
        )
    for host in hosts:
        _Asserts().visit(host)
    kept: list[ast.stmt] = [*constants.values(), *kernels, *hosts]
    names = _private_names(
        [*constants, *(kernel.name for kernel in kernels), *(host.name for host in hosts)],
        code,
        public,
        suffix,
    )
    kernel_names = frozenset(names[kernel.name] for kernel in kernels)
    for node in kept:
        _Renamer(
            node, names, code.scope.aliases if node in hosts or isinstance(node, ast.Assign) else {}
        ).apply()
    helpers: list[ast.stmt] = []
    if wrap:
        launches = _Launches(kernel_names, BLOCK_SIZE + suffix)
        for host in hosts:
            launches.visit(host)
        code_of_size = _BLOCK_SIZE_CODE.replace(BLOCK_SIZE, BLOCK_SIZE + suffix)
        helpers = tree_of(code_of_size).body if launches.sized else []
    functions = (*kernels, *helpers, *hosts)
    text = "\n\n\n".join(
        part
        for part in ("\n".join(map(_unparse, constants.values())), *map(_unparse, functions))
        if part
    )
    used = {node.id for node in ast.walk(tree_of(text)) if isinstance(node, ast.Name)}
    imports = tuple(line for name, line in _OPTIONAL_IMPORTS.items() if name in used)
    return JudgedPart(text + "\n", imports, ENTRY_NAME + suffix)


def candidate_of(saved: str) -> str:
    """The text to judge of a saved file with one kernel. Raises NoJudgedPart."""
    found = candidates_of(saved)
    if len(found) > 1:
        raise NoJudgedPart(
            f"the file chooses among {len(found)} kernels, and one is wanted",
            fix="--shape names the one for a shape; `kmint verify FILE` judges all",
            title="several kernels",
        )
    return next(iter(found.values()))


def candidates_of(saved: str) -> dict[str, str]:
    """The texts to judge of a saved file by the names of their entries. Raises NoJudgedPart."""
    found: dict[str, str] = {}
    end = 0
    while (begin := saved.find(BEGIN + "\n", end)) >= 0:
        end = saved.find("\n" + END, begin)
        if end < 0:
            break
        try:
            entry, text = _candidate(saved[begin + len(BEGIN) : end])
        except (SyntaxError, ValueError) as error:
            raise NoJudgedPart(f"the judged part is not Python any more: {error}") from error
        if entry in found:
            raise NoJudgedPart(f"two judged parts define `{entry}`")
        found[entry] = text
    if not found or end < 0:
        raise NoJudgedPart(
            "the file has no part marked as judged",
            fix="`kmint judge FILE --op OP` judges any kernel file",
        )
    return found


def _candidate(text: str) -> tuple[str, str]:
    """The name of the entry, and the text with the entry named `run`."""
    tree = parse(text)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    numbered = [name for name in functions if _NUMBERED.fullmatch(name)]
    entry = numbered[-1] if numbered and ENTRY_NAME not in functions else ENTRY_NAME
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            node.name = ENTRY
    body = ast.unparse(ast.fix_missing_locations(_Unwrap(entry).visit(tree)))
    return entry, "\n".join([*_OPTIONAL_IMPORTS.values(), "", body, ""])


def _reachable(code: HostCode, kernels: set[str]) -> list[ast.FunctionDef]:
    """`run` and the host functions that it calls, in the order of the file, with `run` last."""
    functions = {
        name: function for name, function in code.scope.functions.items() if name not in kernels
    }
    wanted, pending = {ENTRY}, [code.run]
    while pending:
        for name in _names(pending.pop()) & functions.keys() - wanted:
            wanted.add(name)
            pending.append(functions[name])
    return [
        *(function for name, function in functions.items() if name in wanted and name != ENTRY),
        code.run,
    ]


def _constants(hosts: list[ast.FunctionDef], code: HostCode) -> list[str]:
    """The constants that host code uses, also through other constants.

    Names of torch and triton are written out instead.
    """
    used = set().union(*(_names(host) - _locals(host) for host in hosts))
    while (
        mentioned := {
            part
            for name in used & code.scope.assigned.keys()
            for part in _names(code.scope.assigned[name])
        }
        - used
    ):
        used |= mentioned
    found = [
        name for name in code.scope.assigned if name in used and name not in code.scope.aliases
    ]
    for name in found:
        if name in code.scope.rebound:
            raise NotSaveable(f"`{name}` is assigned more than once at the top level")
    return found


def _private_names(names: list[str], code: HostCode, public: str, suffix: str) -> dict[str, str]:
    """For each name one with a leading underscore that neither the source nor a saved file uses."""
    mentioned = {
        node.id for node in ast.walk(code.tree) if isinstance(node, ast.Name)
    } | _arguments(code.tree)
    bound = _TAKEN | RESERVED | {public, ENTRY_NAME, ENTRY_NAME + suffix, BLOCK_SIZE + suffix}
    taken = mentioned | set(names) | bound
    chosen: dict[str, str] = {ENTRY: ENTRY_NAME + suffix}
    for name in names:
        if name in chosen:
            continue
        new = (name if name.startswith("_") else f"_{name}") + suffix
        while new in bound or (new != name and new in taken):
            new += "_"
        chosen[name] = new
        taken.add(new)
    return chosen


class _Renamer(ast.NodeTransformer):
    """Makes top-level names private and writes aliases out, except for local variables."""

    def __init__(self, statement: ast.stmt, names: dict[str, str], aliases: dict[str, str]) -> None:
        self._statement = statement
        self._names = names
        self._aliases = aliases
        self._hidden = _locals(statement) if isinstance(statement, ast.FunctionDef) else set()

    def apply(self) -> None:
        self.visit(self._statement)
        if isinstance(self._statement, ast.FunctionDef):
            self._statement.name = self._names[self._statement.name]
            if self._aliases:
                _make_plain(self._statement)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self._hidden:
            return node
        full = dotted(node, self._aliases)
        if full is not None:
            return canonical_node(full, node)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._hidden:
            return node
        full = self._aliases.get(node.id)
        if full is not None and node.id not in self._names:
            return canonical_node(full, node)
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


class _Asserts(ast.NodeTransformer):
    """Turns `assert` into `raise`, which `python -O` keeps."""

    def visit_Assert(self, node: ast.Assert) -> ast.If:
        words = [] if node.msg is None else [node.msg]
        error = ast.Call(ast.Name("AssertionError", ast.Load()), words, [])
        refusal = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Raise(error)], [])
        return ast.fix_missing_locations(ast.copy_location(refusal, node))


class _Launches(ast.NodeTransformer):
    """Writes `kernel[grid]` as `wrap_triton(kernel)[grid]`, and finds block sizes by comparison.

    `sized` is true if there was a block size.
    """

    def __init__(self, kernels: frozenset[str], block_size: str) -> None:
        self._kernels, self._block_size = kernels, block_size
        self.sized = False

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._kernels:
            node.value = ast.Call(ast.Name("wrap_triton", ast.Load()), [node.value], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if (
            ast.unparse(node.func) == "triton.next_power_of_2"
            and len(node.args) == 1
            and not node.keywords
        ):
            node.func = ast.Name(self._block_size, ast.Load())
            self.sized = True
        return node


class _Unwrap(ast.NodeTransformer):
    def __init__(self, entry: str) -> None:
        self._entry = entry

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(ENTRY, node.ctx) if node.id == self._entry else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        wraps = (
            isinstance(node.func, ast.Name)
            and node.func.id == "wrap_triton"
            and len(node.args) == 1
            and not node.keywords
        )
        return node.args[0] if wraps else node


def _names(root: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(root) if isinstance(node, ast.Name)}


def _arguments(root: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(root) if isinstance(node, ast.arg)}


def _locals(function: ast.FunctionDef) -> set[str]:
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return stored | _arguments(function)


def _make_plain(host: ast.FunctionDef) -> None:
    """Remove decorators, annotations and docstring, which have no effect on launches."""
    host.decorator_list, host.returns = [], None
    for argument in host.args.args:
        argument.annotation = None
    first = host.body[0]
    if len(host.body) > 1 and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        del host.body[0]


def _unparse(node: ast.AST) -> str:
    # Python writes the grid `[(M,)]` as `[M,]`, which reads like a slip.
    return re.sub(r"\[(\w+),\]\(", r"[(\1,)](", ast.unparse(ast.fix_missing_locations(node)))
