"""Imports a user's reference file, with the neighbouring files that it needs.

The file is the user's own trusted code and runs in the judge's process. A module in the file's
folder or package is found as Python would find it for a script. Every file read is recorded with
its digest. Imports of kmint itself never use that folder.

Limits: the modules stay loaded until another file is imported. Compiled extension modules are not
found.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from referee.reference.unusable import UnusableReference, one_line
from referee.reference.user_torch import user_code_runs


@dataclass(frozen=True)
class UserFile:
    """The imported file. `sha256` is its digest, `read` has those of all other imported files."""

    path: Path
    module: ModuleType
    text: str
    sha256: str
    read: Mapping[Path, str]

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Names (from the file's folder) and sha256 of all files read: the file comes first."""
        others = sorted(
            (_relative(file, self.path.parent), digest)
            for file, digest in self.read.items()
            if file != self.path
        )
        return ((self.path.name, self.sha256), *others)

    @property
    def digest(self) -> str:
        """The file's sha256, or one of the names and digests of all files if it imports others."""
        if len(self.files) == 1:
            return self.sha256
        return hashlib.sha256(
            "".join(f"{name} {digest}\n" for name, digest in self.files).encode()
        ).hexdigest()

    @property
    def changed(self) -> bool:
        """Whether a file has changed since it was read."""
        try:
            return any(_sha256(self.path.parent / name) != digest for name, digest in self.files)
        except OSError:
            return True


def import_file(path: Path) -> UserFile:
    """Import the file, within `user_code`. Raises UnusableReference."""
    if path.suffix != ".py":
        raise UnusableReference(
            f"{path} is not a Python file; a reference is named as FILE.py or FILE.py:function"
        )
    try:
        if path.exists() and not path.is_file():
            raise UnusableReference(f"{path} is not a regular file")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UnusableReference(f"{path} does not exist") from None
    except OSError as error:
        raise UnusableReference(f"{path} cannot be read: {one_line(error)}") from None
    path = path.resolve()
    finder = _neighbours(path)
    module = _executed(path, content, finder)
    return UserFile(
        path,
        module,
        content.decode("utf-8", "replace"),
        hashlib.sha256(content).hexdigest(),
        finder.read,
    )


def _executed(path: Path, content: bytes, finder: _Neighbours) -> ModuleType:
    name = (
        finder.module_name(path)
        if _imports_relatively(content)
        else f"kmint_user_reference_{abs(hash(path))}"
    )
    spec = importlib.util.spec_from_file_location(name, path, loader=_AsItStands(name, str(path)))
    assert spec is not None and spec.loader is not None
    try:
        if "." in name:
            importlib.import_module(name.rpartition(".")[0])
        module = importlib.util.module_from_spec(spec)
        # Registered while it runs, because dataclasses and pickling look up their module by name.
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UnusableReference(f"{path} failed on import: {one_line(error)}") from error
    return module


def _imports_relatively(content: bytes) -> bool:
    try:
        return any(
            isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(ast.parse(content))
        )
    except (SyntaxError, ValueError):
        # The import reports this failure better.
        return False


class _AsItStands(SourceFileLoader):
    """Ignores bytecode, which counts as current for an equal size and second of change."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Noted(_AsItStands):
    """Records the file that it reads."""

    def __init__(self, name: str, path: str, read: dict[Path, str]) -> None:
        super().__init__(name, path)
        self._read = read

    def get_data(self, path: str) -> bytes:
        content = super().get_data(path)
        self._read[Path(path)] = hashlib.sha256(content).hexdigest()
        return content


class _Neighbours:
    """Finds modules in one folder, and in the folder above the package of that folder."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.root = self.folder
        while (self.root / "__init__.py").exists() and self.root != self.root.parent:
            self.root = self.root.parent
        self.read: dict[Path, str] = {}
        self.loaded: set[str] = set()

    def module_name(self, path: Path) -> str:
        """The file's dotted name within its package; its folder counts as one."""
        root = self.root if self.root != self.folder else self.folder.parent
        return ".".join(path.relative_to(root).with_suffix("").parts)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` requires. Python's own modules keep their names."""
        top = name.partition(".")[0]
        if (
            not user_code_runs()
            or top in sys.stdlib_module_names
            or (path is not None and top not in self.loaded)
        ):
            return None
        places = (
            [Path(place) for place in path]
            if path is not None
            else list(dict.fromkeys((self.folder, self.root, self._above(top))))
        )
        for place in places:
            found = place / name.rpartition(".")[2]
            if (file := found.with_suffix(".py")).is_file():
                return self._spec(name, file, None)
            if (file := found / "__init__.py").is_file():
                return self._spec(name, file, [str(found)])
            if found.is_dir() and (path is not None or found == self.folder):
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(found)]
                self.loaded.add(name)
                return spec
        return None

    def _above(self, top: str) -> Path:
        """The folder above the file's folder, for an import of the file's folder by its name."""
        return self.folder.parent if top == self.folder.name else self.folder

    def _spec(self, name: str, file: Path, inside: list[str] | None) -> ModuleSpec | None:
        self.loaded.add(name)
        loader = _Noted(name, str(file), self.read)
        return importlib.util.spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=inside
        )


_last: list[_Neighbours] = []


def _neighbours(path: Path) -> _Neighbours:
    """Let the user's code find the modules next to the file, until another file is imported."""
    for finder in _last:
        sys.meta_path.remove(finder)
        for name in finder.loaded:
            sys.modules.pop(name, None)
    finder = _Neighbours(path)
    _last[:] = [finder]
    sys.meta_path.insert(0, finder)
    return finder


def _relative(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file, folder)).as_posix()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
