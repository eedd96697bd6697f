"""That the kernels a candidate's process would run are those that the judge cut out of its text.

A plan names kernels, and the judge compiles its own cut of the text under these names. Host code that reaches past the screen
could bind a name to another kernel, change a constant that a kernel reads, or one of Triton's own words: then the user's process
would run something else. So the imported file is compared with the cut, and all of it must stay as it was. Runs in the trace
worker, which a candidate shares: a second line of defence, behind the screen's vocabulary. Limit: what is changed in Triton, other
than a word that the kernels use, and put back before a cell ends, is not seen.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import math
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch
import triton
import triton.language as tl

from referee import triton_private
from referee.reading import launch_metadata
from referee.reading.kernel_vocabulary import BUILTINS
from referee.reading.kernels import extract
from referee.reading.module_scope import read
from referee.reading.names import dotted
from referee.reading.source import parse
from referee.tracing.snapshot import Snapshot

_LIBDEVICES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_WATCHED = ("triton", "triton.runtime.jit", "triton.runtime.autotuner", "triton.compiler.code_generator", *_LIBDEVICES)
_MISSING = object()


def _watched() -> list[tuple[str, object]]:
    for name in _WATCHED:
        importlib.import_module(name)
    return [(name, module) for name, module in sys.modules.items() if name in _WATCHED or name.startswith("triton.language")]


# Walking through all of Triton's language takes milliseconds: the fork server does it, once.
_TRITON = Snapshot(_watched())


class Changed(ValueError):
    """Something that kernels are made of is not what the text says; the message names it, `guard` the rule."""

    def __init__(self, reason: str, guard: str = "state") -> None:
        super().__init__(reason)
        self.guard = guard


class Unchanged:
    """Made before a candidate is imported. Then `imported` is called once, `at_launch` at every launch, `after` when all is done."""

    def __init__(self, source: str, path: str) -> None:
        """`path` is where the candidate's file will lie. Raises KernelError when no kernels can be cut out of the source."""
        clean = extract(source)
        self._path = path
        self._tree = parse(source)
        self._scope = read(self._tree)
        self._judged = _import_clean(clean.text, f"{path.removesuffix('.py')}_cut.py")
        self._kernels = clean.kernels
        self._texts = {name: _text_of(self._scope.functions[name], source) for name in clean.kernels}
        self._constants = _constants(clean.text)
        self._roots = _roots()
        self._triton = _TRITON.renewed()
        self._used = Snapshot(self._words(ast.parse(clean.text)))
        self._names: dict[str, Any] = {}
        self._bound: dict[str, object] = {}

    def imported(self, names: dict[str, Any]) -> None:
        """Compare an imported file's names with the text. Raises Changed."""
        self._names = names
        self._compare_words(self._triton)
        read_names = {node.id for name in self._kernels for node in _body(self._scope.functions[name]) if isinstance(node, ast.Name)}
        for name in sorted(read_names & BUILTINS - self._scope.functions.keys() - self._scope.aliases.keys()):
            if name in names:
                raise Changed(f"`{name}` is bound in the file")
        for name in self._kernels:
            self._compare_kernel(name, names.get(name))
        for name in self._constants:
            if not _same(names.get(name, _MISSING), getattr(self._judged, name)):
                raise Changed(f"`{name}`, which a kernel reads, is not what its line says")
        aliases = sorted(read_names & self._scope.aliases.keys())
        for name in aliases:
            if not self._is_word(names.get(name, _MISSING), self._scope.aliases[name]):
                raise Changed(f"`{name}` is not {self._scope.aliases[name]}, which its line says")
        self._bound = {name: names[name] for name in (*self._kernels, *self._constants, *aliases)}

    def at_launch(self, jit: Any) -> None:
        """Look at the kernel of one launch, and at what all kernels use. Raises Changed."""
        name = jit.__name__
        bindings = self._bound.get(name), self._names.get(name)
        if name not in self._kernels or any(triton_private.innermost(binding) is not jit for binding in bindings):
            reason = f"a kernel `{str(name)[:60]}` is launched that is not the one which the file binds to this name at its top level"
            raise Changed(f"{reason}; decorate the function with @triton.jit there, once", "launch_feature")
        for bound, value in self._bound.items():
            if self._names.get(bound, _MISSING) is not value:
                raise Changed(f"`{bound}`, which kernels use, is bound again")
        for kernel in self._kernels:
            self._compare_kernel(kernel, self._names.get(kernel), text=False)
        for constant in self._constants:
            if not _same(self._names[constant], getattr(self._judged, constant)):
                raise Changed(f"`{constant}`, which a kernel reads, is not what its line says")
        self._compare_words(self._used)

    def after(self) -> None:
        """Look at all of Triton's language once more. Raises Changed."""
        self._compare_words(self._triton)

    def _compare_words(self, snapshot: Snapshot) -> None:
        if (found := snapshot.changed()) is not None:
            raise Changed(f"Triton's `{found}` is changed")

    def _compare_kernel(self, name: str, bound: Any, text: bool = True) -> None:
        jit = triton_private.innermost(bound)
        if jit is None or jit.__name__ != name:
            raise Changed(f"`{name}` is not bound to its kernel")
        found, judged = triton_private.read_jit(jit), triton_private.read_jit(getattr(self._judged, name))
        function = found.function
        if type(function) is not FunctionType or not self._is_defined_there(function, name):
            raise Changed(f"`{name}` is not the function that the file defines")
        if found.names is not self._names or function.__globals__ is not self._names:
            raise Changed(f"`{name}` sees other names than those of the file")
        given, expected = ((facts.parameters, facts.options) for facts in (found, judged))
        defaults = (found.signature, found.function.__defaults__), (judged.signature, judged.function.__defaults__)
        if given != expected or not _same(*defaults):
            raise Changed(f"the parameters of `{name}` are not what its text says")
        describes = launch_metadata.named(self._scope.functions[name], self._scope)
        if found.describes is not (self._names.get(describes) if describes is not None else None):
            raise Changed(f"`{launch_metadata.OPTION}` of `{name}` is not what its text says")
        if text and ast.dump(ast.parse(found.text)) != self._texts[name]:
            raise Changed(f"`{name}` is not the function that the file defines")
        if text:
            self._texts[name] = found.text
        elif found.text != self._texts[name]:
            raise Changed(f"the text of `{name}` is changed")

    def _is_defined_there(self, function: FunctionType, name: str) -> bool:
        statement = self._scope.functions[name]
        # Decorators written above the function; those of `kernel = triton.jit(kernel)` stand below it.
        lines = {statement.lineno, *(node.lineno for node in statement.decorator_list)}
        code = function.__code__
        return (code.co_filename, code.co_name) == (self._path, name) and code.co_firstlineno in lines and function.__closure__ is None

    def _is_word(self, value: object, full: str) -> bool:
        """True for the word itself, and for the one of the same name in another of Triton's modules, as files import them by version."""
        root, *rest = full.split(".")
        if root not in self._roots:
            return True
        modules = self._roots[root]
        if rest and root in ("tl", "libdevice", "math"):
            modules = [*modules, tl.math, *self._roots["libdevice"], math]
            return any(value is _reach(module, rest) or value is getattr(module, rest[-1], _MISSING) for module in modules)
        return any(value is _reach(module, rest) for module in modules)

    def _words(self, tree: ast.Module) -> Iterator[tuple[str, object]]:
        bound = {"tl": "tl", "triton": "triton", "libdevice": "libdevice", "math": "math"}
        found = (dotted(node, bound) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        for full in sorted({full for full in found if full is not None}):
            root, *rest = full.split(".")
            for module in self._roots[root]:
                yield full, _reach(module, rest)


def _roots() -> dict[str, list[Any]]:
    """The modules that the canonical names of `names.py` stand for."""
    language = [tl, *(module for name in ("core", "standard") if (module := getattr(tl, name, None)) is not None)]
    return {
        "tl": language,
        "libdevice": [importlib.import_module(name) for name in _LIBDEVICES],
        "math": [math],
        "triton": [triton],
        "torch": [torch],
    }


def _reach(value: object, attributes: list[str]) -> object:
    for attribute in attributes:
        value = getattr(value, attribute, _MISSING)
    return value


def _import_clean(text: str, path: str) -> ModuleType:
    """The clean kernel module, imported; nothing of it is left for the candidate to find."""
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
    module = ModuleType(name)
    module.__file__ = path
    # Where `inspect` looks first for a function's file.
    sys.modules[name] = module
    try:
        exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.modules.pop(name, None)
        os.remove(path)
    return module


def _constants(text: str) -> tuple[str, ...]:
    targets = (node.targets[0] for node in ast.parse(text).body if isinstance(node, ast.Assign))
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _text_of(function: ast.FunctionDef, source: str) -> str:
    """A function's tree without its decorators, as Triton reads it: from the lines of the file."""
    lines = ast.get_source_segment(source.removeprefix("\ufeff"), function, padded=True)
    return ast.dump(ast.parse(textwrap.dedent(lines or "")))


def _body(function: ast.FunctionDef) -> Iterator[ast.AST]:
    for statement in function.body:
        yield from ast.walk(statement)


def _same(value: object, expected: object) -> bool:
    """Equal in type and value, also inside tuples and Triton's constants."""
    if type(value) is not type(expected):
        return False
    if isinstance(value, tuple) and isinstance(expected, tuple):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if value is expected or isinstance(value, (bool, int, float, str)):
        # As text, because NaN differs from itself.
        return repr(value) == repr(expected)
    known: Mapping[str, object] = getattr(value, "__dict__", {})
    wanted: Mapping[str, object] = getattr(expected, "__dict__", {})
    ours = type(value).__module__.startswith("triton.") and known.keys() == wanted.keys()
    return ours and all(_same(part, wanted[name]) for name, part in known.items())
