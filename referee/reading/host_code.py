"""Host code under the screen's eye: the statements of functions that are not kernels, and of the top level.

A name means what Python's rules of scope say (`local_names.py`). What neither a function binds nor the file itself at its top level is
Python's own, and has to be on the list of what may be used, whatever else in the file is called so. For early feedback only: what slips
past is met again by the tracer, which sees what the code does, and by the judge, who executes nothing but the plan.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from referee.reading import fallbacks, host_attributes
from referee.reading.host_functions import check_annotation, check_annotations, defaults
from referee.reading.host_refused import HostRefused
from referee.reading.host_tries import hides
from referee.reading.host_vocabulary import (
    BUILTINS,
    CONTEXTS,
    MUTATORS,
    QUERIES,
    REFUSED_NAMES,
    STANDARD_WORDS,
    TENSOR_COMPUTE,
    TORCH,
    TORCH_REFUSED,
    TRITON,
    TRITON_MODULES,
    TRITON_QUERIES,
    VALUE_READERS,
)
from referee.reading.host_words import KERNEL_ATTRIBUTES, LOGGER_METHODS, Meaning, allowed_names, excused, telling
from referee.reading.kernel_vocabulary import TL_DTYPES
from referee.reading.module_scope import Scope
from referee.reading.names import dotted

# Nobody needs a module as a value; what could then be asked of it is more than what its words are.
_MODULES = frozenset({"torch", "torch.cuda", "torch.nn", "triton", "triton.runtime", "math", *STANDARD_WORDS})

IN_TRITON = "the answer must be computed in Triton"
_MOVES = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
WRITTEN_OUT = "write the context out, as in `with torch.cuda.device(x.device):`"
SET_DEVICE = "write `with torch.cuda.device(x.device):` around what needs it"
MAIN_GUARD = 'below `if __name__ == "__main__":`'
FALLBACK = "take this fallback out, for the inputs are on the GPU: "
OR_CACHED = ", or @functools.lru_cache on a helper that returns numbers"

_RENAMED = "outside of its own methods' `self`, give it a name without `_`"
_INSTEAD_OF_PRIVATE = {
    "__class__": "ask `isinstance(x, ...)` or `type(x) == ...`",
    **dict.fromkeys(("_check", "_assert"), "write `if not ...: raise ValueError(...)` or `assert`"),
}

REFUSED_SYNTAX: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try_except", "try/except at the top level may stand around imports only; remove it"),
    ast.TryStar: ("try_except", "`except*` is not supported; remove the try"),
    ast.ClassDef: ("statement", "a class inside a function; move it to the top level of the file"),
    ast.Global: ("state", "`global` keeps state between calls; use local variables" + OR_CACHED),
    ast.Nonlocal: ("state", "`nonlocal` keeps state between calls; use local variables"),
    ast.AsyncFunctionDef: ("statement", "asynchronous code is not supported"),
    ast.Await: ("statement", "asynchronous code is not supported"),
    ast.AsyncFor: ("statement", "asynchronous code is not supported"),
    ast.AsyncWith: ("statement", "asynchronous code is not supported"),
    ast.Yield: ("statement", "generators are not supported; return the output"),
    ast.YieldFrom: ("statement", "generators are not supported; return the output"),
    ast.Match: ("statement", "use if instead of match"),
}


def _wrapped(decorator: ast.expr, scope: Scope) -> Iterator[ast.expr]:
    """What is to be checked of a nested function's decorator: of `functools.wraps(function)`, which changes the nested one only, what it
    is given."""
    match decorator:
        case ast.Call(func=called, args=[function], keywords=[]) if dotted(called, scope.aliases) == "functools.wraps":
            yield function
        case _:
            yield decorator


class Checker:
    """Walks one statement or decorator.

    `names` says what names certainly mean; `module_names` are bound at the top level; `own` names what a method may set attributes
    of; `attributes` are the file's own. What runs `at_import` may fill containers of the file. Torch may compute in what is `never_run`.
    Names that are `held` are contexts.
    """

    def __init__(
        self,
        scope: Scope,
        names: Meaning,
        module_names: frozenset[str],
        own: frozenset[str] = frozenset(),
        *,
        attributes: frozenset[str] = frozenset(),
        generator: bool = False,
        at_import: bool = False,
        never_run: frozenset[int] = frozenset(),
        held: frozenset[int] = frozenset(),
    ) -> None:
        self._scope = scope
        self._names = replace(names, aliases=scope.aliases)
        self._variables = names.variables
        self._contexts: set[int] = set()
        self._held = held
        self._called: set[ast.expr] = set()
        self._module = module_names
        self._own = own
        self._attributes = attributes
        self._public = {"__name__", "__version__"} | (host_attributes.NAMED_TUPLES & attributes)
        self._generator = generator
        self._at_import = at_import
        self._never_run = never_run
        self._fallbacks: frozenset[int] = frozenset()

    def check(self, root: ast.AST) -> None:
        """Raise HostRefused for the first thing that cannot pass."""
        pending = [root]
        self._fallbacks = frozenset(fallbacks.advised(root))
        harmless = {*excused(root, self._names), *self._variables}
        while pending:
            node = pending.pop()
            harmless.update(allowed_names(node, self._names))
            if id(node) not in harmless and (reason := telling(node, self._names)) is not None:
                raise HostRefused("vocabulary", reason, node)
            if isinstance(node, ast.Try):
                if (hidden := hides(node, self._names)) is not None:
                    raise HostRefused("try_except", hidden, node)
            elif type(node) in REFUSED_SYNTAX and not (self._generator and isinstance(node, ast.Yield)):
                guard, reason = REFUSED_SYNTAX[type(node)]
                raise HostRefused(guard, reason, node)
            pending.extend(reversed(list(self._below(node))))

    def _below(self, node: ast.AST) -> Iterator[ast.AST]:
        """Check one node; yield the nodes below it that are still to be checked."""
        if isinstance(node, ast.Call):
            self._called.add(node.func)
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
            return
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Lambda):
            if any(isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Call)) for default in node.args.defaults):
                raise HostRefused("state", "a mutable default argument keeps state between calls", node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        elif isinstance(node, ast.Call) and self._names.is_builtin(node.func, ("getattr", "hasattr")):
            yield from self._named_attribute(node)
            return
        elif isinstance(node, ast.Call) and dotted(node.func, self._scope.aliases) == "logging.basicConfig":
            if node.args or any(keyword.arg not in ("level", "format", "datefmt") for keyword in node.keywords):
                raise HostRefused("vocabulary", "`logging.basicConfig` may set level, format and datefmt only", node)
            yield from (keyword.value for keyword in node.keywords)
            return
        elif isinstance(node, ast.With):
            for item in node.items:
                if id(item.context_expr) in self._held:
                    continue
                called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                own = isinstance(called, ast.Name) and called.id in self._module | self._scope.functions.keys()
                self._contexts.add(id(called))
                if id(called) in self._variables:
                    raise HostRefused("vocabulary", f"`with {ast.unparse(item.context_expr)[:60]}`: {WRITTEN_OUT}", node)
                if not own and dotted(called, self._scope.aliases) not in CONTEXTS:
                    raise HostRefused("vocabulary", f"`with {ast.unparse(item.context_expr)[:60]}` is not supported", node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            self._no_global(node.value, node)
        elif isinstance(node, ast.AnnAssign):
            check_annotation(node.annotation)
            yield from (child for child in (node.target, node.value) if child is not None)
            return
        elif isinstance(node, ast.arg):
            return
        elif isinstance(node, ast.FunctionDef):
            check_annotations(node)
            for decorator in node.decorator_list:
                yield from _wrapped(decorator, self._scope)
            yield from (*defaults(node), *node.body)
            return
        yield from ast.iter_child_nodes(node)

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if not isinstance(node.ctx, ast.Load) or id(node) in self._variables:
            return
        if name in self._names.unclear:
            raise HostRefused("imports", f"`{name}` is imported, and may be something else as well; let one import bind it", node)
        if name in REFUSED_NAMES:
            raise HostRefused("vocabulary", f"`{name}` is not allowed: {REFUSED_NAMES[name]}", node)
        if self._names.is_logger(node):
            raise HostRefused("vocabulary", f"`{name}` is for logging only, as in `{name}.info(...)`", node)
        if name in ("getattr", "hasattr"):
            raise HostRefused("vocabulary", f"`{name}` may only be called, with a name that is written out", node)
        if name in self._scope.aliases:
            self._word(self._scope.aliases[name], node)
        elif name in BUILTINS:
            return
        elif hasattr(builtins, name) or name.startswith("__"):
            raise HostRefused("vocabulary", f"`{name}` is Python's own and not allowed in host code; give yours another name", node)
        elif name not in self._module and name not in self._scope.functions:
            raise HostRefused("vocabulary", f"`{name}` is neither defined in the file nor allowed in host code", node)

    def _named_attribute(self, node: ast.Call) -> Iterator[ast.AST]:
        """`getattr(x, "name", default)` as `x.name`."""
        if len(node.args) < 2 or not (isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str)):
            raise HostRefused("vocabulary", "`getattr` needs a name that is written out; write the attribute out", node)
        asks = self._names.is_builtin(node.func, ("hasattr",))
        if asks and not node.args[1].value.startswith("_") and self._names.is_module(node.args[0], TRITON_MODULES):
            return
        named = ast.copy_location(ast.Attribute(node.args[0], node.args[1].value, ast.Load()), node)
        if node in self._called or asks:
            self._called.add(named)
        yield named
        yield from node.args[2:]

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.AST]:
        own = isinstance(node.value, ast.Name) and node.value.id in self._own
        if node.attr.startswith("_") and node.attr not in self._public and not (own and not node.attr.startswith("__")):
            if not (node.attr == "__init__" and isinstance(node.value, ast.Call) and self._names.is_builtin(node.value.func, ("super",))):
                usual = _RENAMED if node.attr in self._attributes else "use public attributes of tensors"
                instead = _INSTEAD_OF_PRIVATE.get(node.attr, usual)
                raise HostRefused("vocabulary", f"`.{node.attr}` is private; {instead}", node)
        if own:
            return
        if node.attr in LOGGER_METHODS and node in self._called and self._names.is_logger(node.value):
            return
        if not isinstance(node.ctx, ast.Load):
            raise HostRefused("state", f"setting `.{node.attr}` keeps state between calls", node)
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and id(root) not in self._variables:
            full = dotted(node, self._scope.aliases)
            if full is not None:
                self._word(full, node)
                return
            if root.id in self._scope.functions and node.attr == "warmup":
                reason = f"`{root.id}.warmup` asks the compiler for registers, which a trace does not know: compute the number of programs"
                raise HostRefused("launch_feature", f"{reason} from the shape and from multi_processor_count", node)
            if root.id in self._scope.functions and node.attr not in ("run", "__name__"):
                reads = "are what a kernel object remembers; only launch kernels"
                keeps = reads if node.attr in KERNEL_ATTRIBUTES else "keep state between calls"
                raise HostRefused("state", f"attributes of the function `{root.id}` {keeps}", node)
            if node.attr in MUTATORS:
                self._no_global(root, node)
        # Elsewhere than in a message these two are refused as telling.
        if node.attr not in ("__name__", "format"):
            self._asked(node.attr, node, limit=self._is_limit(node))
        yield node.value

    def _asked(self, attribute: str, node: ast.expr, *, limit: bool = False) -> None:
        """What may be asked of a value; of a `limit`, what `torch.finfo` gives, more."""
        if attribute == "set_device":
            raise HostRefused("state", f"`.{attribute}` outlasts the call; {SET_DEVICE}", node)
        if attribute in VALUE_READERS:
            reads = (
                "says where a tensor lies; Triton handles alignment itself, and" if attribute == "data_ptr" else "reads a tensor's values;"
            )
            raise HostRefused("needs_value", f"`.{attribute}` {reads} launches may depend on shapes and dtypes only", node)
        if attribute in KERNEL_ATTRIBUTES:
            raise HostRefused("state", f"`.{attribute}` is what a kernel object remembers; only launch kernels", node)
        if id(node) in self._never_run and attribute in fallbacks.METHODS:
            return
        if attribute in TENSOR_COMPUTE - self._attributes and not limit:
            raise HostRefused("torch_compute", f"`.{attribute}`: {self._in_triton(node)}", node)
        self._only_called(attribute, node)
        if attribute not in host_attributes.KNOWN | self._attributes:
            if attribute in ("eval", "train"):
                raise HostRefused("vocabulary", f"`.{attribute}()` changes nothing that launches depend on; take it off", node)
            reason = f"`.{attribute}` is nothing that host code may ask for: launches depend on shapes, dtypes and the device only"
            raise HostRefused("vocabulary", reason, node)

    def _only_called(self, full: str, node: ast.expr) -> None:
        """Refuse a stand-in, for torch's or Triton's, of which more than its answer is asked; and a log, seen where it is called."""
        log = full.startswith("logging.") and full.rpartition(".")[2] in LOGGER_METHODS
        if (log or full.rpartition(".")[2] in QUERIES) and node not in self._called:
            raise HostRefused("vocabulary", f"`{full}` is not called: write `{full}(...)` where its answer is needed", node)

    def _is_limit(self, node: ast.Attribute) -> bool:
        """`torch.finfo(dtype).min` is a number."""
        called = node.value.func if isinstance(node.value, ast.Call) else None
        return called is not None and dotted(called, self._scope.aliases) in ("torch.finfo", "torch.iinfo")

    def _no_global(self, container: ast.expr, node: ast.AST) -> None:
        while isinstance(container, (ast.Subscript, ast.Attribute)):
            container = container.value
        if isinstance(container, ast.Name) and id(container) not in self._variables and not self._at_import:
            raise HostRefused("state", f"`{container.id}` is changed by a call; keep nothing between calls" + OR_CACHED, node)

    def _word(self, full: str, node: ast.expr) -> None:
        module, _, rest = full.partition(".")
        if full in _MODULES:
            raise HostRefused("vocabulary", f"`{full}` is a module; name what is meant of it, as in `{full}.…`", node)
        if full == "torch.set_grad_enabled" and id(node) not in self._contexts:
            raise HostRefused("state", "`torch.set_grad_enabled` outlasts the call; write `with torch.set_grad_enabled(...):`", node)
        if full.rpartition(".")[2] == "set_device":
            raise HostRefused("state", f"`{full}` outlasts the call; {SET_DEVICE}", node)
        self._only_called(full, node)
        if full.startswith(("torch.__version__", "triton.__version__")):
            return
        if any(part.startswith("_") and part != "__version__" for part in rest.split(".")):
            raise HostRefused("vocabulary", f"`{full}` is private", node)
        if module == "torch":
            self._torch_word(full, rest, node)
        elif module == "triton" and rest:
            word = _longest(rest, TRITON)
            if not word or (word != rest and not full.startswith(TRITON_QUERIES)):
                raise HostRefused("vocabulary", f"`{full}` is not supported in host code", node)
            self._asked_on(rest, word, node)
        elif module == "tl" and rest and rest.partition(".")[0] not in TL_DTYPES and rest != "constexpr":
            raise HostRefused("vocabulary", f"`{full}` belongs in kernels", node)
        elif module == "libdevice" and not isinstance(node, ast.Name):
            raise HostRefused("vocabulary", f"`{full}` belongs in kernels", node)
        elif module == "math":
            word = rest.partition(".")[0]
            self._asked_on(full, f"math.{word}" if word in dir(math) else "math", node)
        elif module not in ("torch", "triton", "tl", "libdevice"):
            self._standard_word(full, node)

    def _standard_word(self, full: str, node: ast.expr) -> None:
        module = _longest(full, STANDARD_WORDS)
        word = full[len(module) + 1 :].partition(".")[0]
        if not module or (full != module and word not in STANDARD_WORDS[module].split()):
            where = "at the top level" if self._at_import else "in `run`"
            reason = f"`{full}` has no place {where}: launches depend on shapes, dtypes and the device only"
            raise HostRefused("vocabulary", f"{reason}; write settings as numbers, and sizes with min, max, math or triton.cdiv", node)
        self._asked_on(full, f"{module}.{word}", node)

    def _asked_on(self, full: str, known: str, node: ast.expr) -> None:
        """Check what is asked of a known word: "itemsize" where the word is "torch.float16"."""
        for attribute in full[len(known) + 1 :].split("."):
            if attribute:
                self._asked(attribute, node)

    def _torch_word(self, full: str, rest: str, node: ast.expr) -> None:
        parts = rest.split(".")
        if id(node) in self._never_run and rest in fallbacks.WORDS:
            return
        known = _longest(rest, TORCH)
        if not rest or rest == known or (known and known != "cuda"):
            self._asked_on(rest, known, node)
            return
        if parts[0] in TORCH_REFUSED:
            if parts[0] == "cuda":
                reason = f"`{full}` is not supported: a plan's launches run on one device and one stream, in order"
                raise HostRefused("launch_feature", reason, node)
            raise HostRefused("vocabulary", f"`{full}` is not supported in host code", node)
        if parts[0] in ("tensor", "as_tensor", "from_numpy"):
            raise HostRefused("torch_compute", f"`{full}` builds data on the host; use torch.full or pass the number to the kernel", node)
        if rest in _MOVES:
            raise HostRefused("torch_compute", f"`{full}` is not supported: allocate the whole and assign or write its parts", node)
        if full in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            reason = f"`{full}` has no place in host code: `run` is given its tensors, plain ones and parameters alike"
            raise HostRefused("torch_compute", reason, node)
        raise HostRefused("torch_compute", f"`{full}`: {self._in_triton(node)}", node)

    def _in_triton(self, node: ast.AST) -> str:
        if self._at_import:
            return f"{IN_TRITON}; what only tests need goes {MAIN_GUARD}"
        return (FALLBACK if id(node) in self._fallbacks else "") + IN_TRITON


def _longest(full: str, words: Collection[str]) -> str:
    """The longest beginning of a dotted name that is one of the words, or ""."""
    parts = full.split(".")
    return next((found for end in range(len(parts), 0, -1) if (found := ".".join(parts[:end])) in words), "")
