"""The top level of a candidate under the screen's eye: which statements may stand there, and which functions and classes.

What no judgement runs is not looked at: tests, benchmarks and references in PyTorch that only stand in the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from referee.reading import fallbacks, host_aliases, host_asserts, host_attributes, host_contexts, host_sets, launch_metadata
from referee.reading.host_classes import NOT_ASSIGNED, check_method, is_member, is_plain_data, special_name
from referee.reading.host_code import MAIN_GUARD, REFUSED_SYNTAX, Checker
from referee.reading.host_functions import check_annotation, check_annotations, defaults, stored
from referee.reading.host_refused import HostRefused
from referee.reading.host_vocabulary import (
    ALLOCATIONS,
    BASES,
    CACHES,
    CLASS_DECORATORS,
    DECORATORS,
    ENUMS,
    ERROR_BASES,
    METHOD_DECORATORS,
    MUTATORS,
    PLAIN_BASES,
)
from referee.reading.host_words import excused, meaning
from referee.reading.kernels import is_kernel
from referee.reading.local_names import local_names
from referee.reading.module_scope import Scope, is_main_guard, is_optional_import, rewords
from referee.reading.names import ImportRefused, dotted, imported
from referee.reading.reachable import at_import, reachable

_WORDS = (ast.Name, ast.Attribute)

# What a file may say with that it cannot be imported.
_TOLD = ERROR_BASES | {"Exception", "ImportError", "ModuleNotFoundError"}
_RAISES = "a `raise` at the top level stops the import; take it and its condition out, or raise in `run`"


def check_host(tree: ast.Module, scope: Scope) -> None:
    """Raise HostRefused for the first thing that cannot pass in what a judgement runs: the top level, and what `run` reaches."""
    for statement in tree.body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in scope.functions:
                # Before what it comes to is looked at, which a test may well hold.
                reason = f"`{name}` is called at the top level, where only imports, constants, functions and classes may stand"
                raise HostRefused("module_level", f"{reason}; put the call {MAIN_GUARD}", statement)
    _Module(tree, scope).check(tree.body)


class _Module:
    """The top level of a file: which of its statements may stand there, and what is checked in each."""

    def __init__(self, tree: ast.Module, scope: Scope) -> None:
        # What is bound twice may be something else than what its import says.
        self._scope = scope = replace(scope, aliases={name: full for name, full in scope.aliases.items() if name not in scope.rebound})
        self._needed = reachable(tree)
        self._never_run = fallbacks.never_run(tree, scope, self._needed)
        self._on_gpus = reachable(tree, never_run=self._never_run)
        self._classes = frozenset(statement.name for statement in tree.body if isinstance(statement, ast.ClassDef))
        bound = (name for statement in tree.body if not isinstance(statement, ast.FunctionDef) for name in stored(statement))
        self._names = frozenset(bound) | self._classes
        # An import that may be made, or not, of a name that means something else otherwise: `len` need not be Python's own then.
        self._unclear = frozenset(_imported(tree.body)) - scope.aliases.keys()
        known = meaning(tree, scope, local_names(tree), self._names)
        self._meaning = replace(known, unclear=self._unclear, shown=launch_metadata.shown(tree, scope))
        self._errors = self._error_classes(tree)
        # What is read anywhere; `FLASH = flash_attn.__version__` may stand where nothing reads it.
        nodes = [node.target if isinstance(node, ast.AugAssign) else node for node in ast.walk(tree) if not _is_bound_only(node)]
        self._read = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
        self._makers = _makers(scope)
        self._attributes = host_attributes.own(tree)
        self._sets = host_sets.of_file(tree, self._meaning.is_builtin)
        self._kept = host_aliases.Aliases(scope.functions, self._names, self._meaning.variables)
        self._unsteady = host_asserts.Unsteady(tree, scope, self._meaning.is_builtin, self._attributes)

    def check(self, body: Sequence[ast.stmt]) -> None:
        """Check statements of the top level, also of those that stand in an `if`, a loop or a `try` of imports there."""
        for statement in body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)) or is_main_guard(statement):
                continue
            if _is_docstring(statement) or self._seeds(statement):
                continue
            if isinstance(statement, ast.FunctionDef):
                self._function(statement)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement)
            elif isinstance(statement, ast.For) and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(statement)):
                raise HostRefused("imports", "an import in a loop; import at the top of the file", statement)
            elif isinstance(statement, (ast.If, ast.For)):
                self._expression(statement.test if isinstance(statement, ast.If) else statement.iter)
                self.check([*statement.body, *statement.orelse])
            elif isinstance(statement, ast.Try) and is_optional_import(statement):
                handlers = (part for handler in statement.handlers for part in self._handled(handler))
                body = [part for part in statement.body if not self._unread_version(part)]
                self.check([*body, *handlers, *statement.orelse, *statement.finalbody])
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and _is_alias(statement, self._scope):
                continue
            elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert)) or self._fills(statement):
                self._expression(statement)
            else:
                guard, reason = REFUSED_SYNTAX.get(type(statement), ("module_level", _RAISES if isinstance(statement, ast.Raise) else ""))
                shown = ast.unparse(statement).partition("\n")[0][:60]
                allowed = f"`{shown}`: only imports, constants, functions and classes may stand at the top level; put the rest {MAIN_GUARD}"
                raise HostRefused(guard, reason or allowed, statement)

    def _handled(self, handler: ast.ExceptHandler) -> list[ast.stmt]:
        """What a handler of failing imports does, without a `raise` at its end that only words the error."""
        *before, last = handler.body
        if isinstance(last, ast.Raise):
            name = rewords(last, handler)
            if (last.exc is None and last.cause is None) or (name in _TOLD and not self._is_bound(name or "")):
                return before
        return handler.body

    def _expression(self, node: ast.AST) -> None:
        self._check_values(node, self._sets)
        Checker(self._scope, self._meaning, self._names, attributes=self._attributes, at_import=True).check(node)

    def _check_values(self, root: ast.AST, known: frozenset[str]) -> None:
        """Refuse what differs between processes: the order of sets (`known` are names of some), what asserts and logs change."""
        if (changing := self._unsteady.changes(root)) is not None:
            raise HostRefused("state", f"`{ast.unparse(changing)[:60]}`: {host_asserts.REASON}", changing)
        found = host_sets.Sets(root, self._meaning.is_builtin, known).misused(set(excused(root, self._meaning)))
        if found is not None:
            raise HostRefused("vocabulary", f"`{ast.unparse(found[0])[:60]}`: {found[1]}", found[0])

    def _fills(self, statement: ast.stmt) -> bool:
        """True for `configs.append(...)` and words of `logging` and `warnings`."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute))):
                return (name in self._names and attribute in MUTATORS) or self._scope.aliases.get(name) in ("logging", "warnings")
        return False

    def _unread_version(self, statement: ast.stmt) -> bool:
        """True for `FLASH = flash_attn.__version__` that nothing reads: there are more versions than a trace could be made with."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(value=ast.Name(id=module), attr="__version__")):
                return name not in self._read and module in self._scope.aliases
        return False

    def _seeds(self, statement: ast.stmt) -> bool:
        """True for `torch.manual_seed(0)`, which no kernel depends on."""
        match statement:
            case ast.Expr(value=ast.Call(func=called, args=[ast.Constant()])):
                return dotted(called, self._scope.aliases) == "torch.manual_seed"
        return False

    def _function(self, function: ast.FunctionDef, owner: ast.ClassDef | None = None) -> None:
        check_annotations(function)
        for default in defaults(function):
            self._expression(default)
        if is_kernel(function, self._scope):
            for node in function.decorator_list:
                self._expression(node)
            return
        for node in function.decorator_list:
            self._decorator(function, node, owner is not None)
        if id(function) not in self._needed:
            return
        for default in defaults(function):
            if isinstance(default, ast.Call):
                reason = "a default argument that is made by a call is one object for all calls: take None, and make it in the function"
                raise HostRefused("state", reason, default)
            if isinstance(default, (ast.List, ast.Dict, ast.Set)):
                raise HostRefused("state", "a mutable default argument keeps state between calls", default)
        own = frozenset(argument.arg for argument in function.args.args if argument.arg in ("self", "ctx")) if owner else frozenset()
        generator = any(dotted(node, self._scope.aliases) == "contextlib.contextmanager" for node in function.decorator_list)
        if generator and not (len(function.decorator_list) == 1 and _is_generator(function)):
            # Of something else than a generator the library would ask what to do with an exception.
            raise HostRefused("try_except", f"`{function.name}` has to be a plain generator, for @contextmanager alone", function)
        never_run = self._never_run if id(function) in self._on_gpus else frozenset(map(id, ast.walk(function)))
        within, attributes = self._with_imports(function), self._attributes
        held = frozenset(host_contexts.held(function, within.aliases, self._meaning.variables))
        checker = Checker(
            within, self._meaning, self._names, own, attributes=attributes, generator=generator, never_run=never_run, held=held
        )
        for statement in function.body:
            checker.check(statement)
        if (changed := self._kept.changed(function)) is not None:
            raise HostRefused("state", f"`{changed[0]}` {host_aliases.REASON}", changed[1])
        self._check_values(ast.Module(function.body, []), self._sets - frozenset(stored(function)))

    def _with_imports(self, function: ast.FunctionDef) -> Scope:
        """The scope inside a function, with what is imported there, under names that mean nothing else in the file."""
        found = dict(self._scope.aliases)
        taken = {*stored(function), *self._names, *self._scope.functions, *self._unclear}
        for node in ast.walk(function):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            try:
                here = imported(node)
            except ImportRefused as error:
                raise HostRefused("imports", str(error).partition(": ")[2], node) from None
            for name, full in here.items():
                if found.setdefault(name, full) != full or name in taken:
                    raise HostRefused("imports", f"`{name}` is imported here and means something else elsewhere in the file", node)
        return replace(self._scope, aliases=found)

    def _decorator(self, function: ast.FunctionDef, node: ast.expr, method: bool) -> None:
        called = node.func if isinstance(node, ast.Call) else node
        self._given(node)
        word = dotted(called, self._scope.aliases)
        name = called.id if isinstance(called, ast.Name) else ""
        own = name in self._scope.functions.keys() - self._unclear
        own = own or (method and name in METHOD_DECORATORS and not self._is_bound(name))
        if word not in DECORATORS and not own and not (method and isinstance(called, ast.Attribute) and called.attr == "setter"):
            reason = f"decorator `{ast.unparse(node)[:60]}` is not supported: only torch.no_grad and its like, functools.lru_cache and"
            reason += f" functions of the file are looked into; take it off, or put a function that `run` does not need {MAIN_GUARD}"
            raise HostRefused("state", reason, node)
        if word in CACHES and id(function) in self._needed and (function.name in self._makers or method):
            raise HostRefused(
                "state", f"`{function.name}` is cached and makes or launches something; keep only numbers between calls", node
            )

    def _given(self, decorator: ast.expr) -> None:
        """Check what a decorator is called with."""
        if isinstance(decorator, ast.Call):
            for argument in (*decorator.args, *(keyword.value for keyword in decorator.keywords)):
                self._expression(argument)

    def _error_classes(self, tree: ast.Module) -> frozenset[str]:
        """The classes of the file that are raised: `class ShapeError(ValueError)`, and those made of them."""
        found: frozenset[str] = frozenset()
        classes = [statement for statement in tree.body if isinstance(statement, ast.ClassDef)]
        while grown := {
            statement.name
            for statement in classes
            if statement.name not in found
            and any(isinstance(base, ast.Name) and (self._is_error(base.id) or base.id in found) for base in statement.bases)
        }:
            found |= grown
        return found

    def _is_error(self, name: str) -> bool:
        return name in ERROR_BASES and not self._is_bound(name)

    def _base(self, base: ast.expr, statement: ast.ClassDef) -> None:
        if statement.name in self._errors and isinstance(base, ast.Name) and (self._is_error(base.id) or base.id in self._errors):
            # Then it can do no more than the one of Python's own that it is made of.
            if len(statement.bases) > 1 or not all(map(_is_docstring, statement.body)):
                raise HostRefused("statement", f"`{statement.name}` is an error: let it have one base and nothing but `pass`", statement)
            return
        match base:
            case ast.Name(id=name) if (name in self._classes - self._unclear) or (name in PLAIN_BASES and not self._is_bound(name)):
                # `class Act(str, Enum)`; a text that is no member of an enumeration could do more than a text.
                if name not in ("str", "int") or any(dotted(one, self._scope.aliases) in ENUMS for one in statement.bases):
                    return
            case ast.Subscript(value=generic) if dotted(generic, self._scope.aliases) == "typing.Generic":
                self._expression(base)
                return
            case _ if dotted(base, self._scope.aliases) in BASES:
                return
        if (dotted(base, self._scope.aliases) or "").startswith("unittest.TestCase"):
            raise HostRefused("statement", f"class `{statement.name}` holds tests, which no judgement needs; put it {MAIN_GUARD}", base)
        reason = f"class `{statement.name}` inherits from `{ast.unparse(base)[:60]}`; only torch.autograd.Function, torch.nn.Module, Enum,"
        raise HostRefused("statement", f"{reason} NamedTuple, ABC and plain classes are supported", base)

    def _is_bound(self, name: str) -> bool:
        return name in self._names | self._unclear or name in self._scope.functions or name in self._scope.aliases

    def _class(self, statement: ast.ClassDef) -> None:
        for base in statement.bases:
            self._base(base, statement)
        enumerates = any(dotted(base, self._scope.aliases) in ENUMS for base in statement.bases)
        if enumerates and not any(is_member(part, self._scope) for part in statement.body):
            # Called, it would make a class of any names, as `type` does.
            raise HostRefused("statement", f"`{statement.name}` is an enumeration without members; write them out", statement)
        for node in statement.decorator_list:
            called = node.func if isinstance(node, ast.Call) else node
            if dotted(called, self._scope.aliases) not in CLASS_DECORATORS:
                raise HostRefused("statement", f"decorator `{ast.unparse(node)[:60]}` is not supported on classes", node)
            self._given(node)
        if statement.keywords:
            raise HostRefused("statement", "classes with keywords are not supported", statement)
        for part in statement.body:
            if isinstance(part, ast.FunctionDef):
                check_method(part)
                self._function(part, statement)
            elif isinstance(part, ast.AnnAssign) and self._is_field(part, statement):
                continue
            elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                for name in NOT_ASSIGNED.intersection(stored(part)):
                    raise HostRefused("statement", f"`{name}` may not be assigned in a class", part)
                self._expression(part)
            elif not _is_docstring(part):
                raise HostRefused("statement", "a class holds methods and constants only", part)
        if found := special_name(statement):
            name, where = found
            reason = f"`{name}` has a meaning of its own in a class, which no launch needs; take it out, or give it a name of its own"
            raise HostRefused("statement", reason, where)

    def _is_field(self, part: ast.AnnAssign, statement: ast.ClassDef) -> bool:
        """True for `x: int = field(...)` in a plain data class, checked.

        A field knows its annotation, in which no word is looked at. So nothing of the file may hold it, or run while it is in the class.
        """
        match part:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=called, args=[], keywords=keywords)):
                known = dotted(called, self._scope.aliases) == "dataclasses.field"
                if not known or name in NOT_ASSIGNED or not is_plain_data(statement, self._scope):
                    return False
                read = [node for root in at_import(statement) for node in ast.walk(root) if not _is_bound_only(node)]
                if any(isinstance(node, ast.Name) and node.id == name for node in read):
                    return False
                check_annotation(part.annotation)
                for keyword in keywords:
                    self._expression(keyword.value)
                return True
        return False


def _imported(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that imports bind at the top level, wherever there, but for those that Python itself reads."""
    pending: list[ast.AST] = [statement for statement in body if not is_main_guard(statement)]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", None) != "__future__":
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending.extend(child for child in ast.iter_child_nodes(node) if not (isinstance(child, ast.stmt) and is_main_guard(child)))


def _is_bound_only(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _is_generator(function: ast.FunctionDef) -> bool:
    """True when the function itself yields, and no function inside it could do so in its place."""
    inside = [node for statement in function.body for node in ast.walk(statement)]
    return any(isinstance(node, ast.Yield) for node in inside) and not any(
        isinstance(node, (ast.FunctionDef, ast.Lambda)) for node in inside
    )


def _makers(scope: Scope) -> frozenset[str]:
    """The functions that make tensors or launch kernels, or call one that does."""
    words = {
        name: {node.attr if isinstance(node, ast.Attribute) else node.id for node in ast.walk(function) if isinstance(node, _WORDS)}
        for name, function in scope.functions.items()
    }
    found = {name for name, used in words.items() if is_kernel(scope.functions[name], scope) or used & ALLOCATIONS}
    while grown := {name for name, used in words.items() if name not in found and used & found}:
        found |= grown
    return frozenset(found)


def _is_alias(statement: ast.Assign | ast.AnnAssign, scope: Scope) -> bool:
    """True for `exp = tl.exp`: what `exp` stands for is checked wherever it is used."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return all(isinstance(target, ast.Name) and target.id in scope.aliases for target in targets)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
