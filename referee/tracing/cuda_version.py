"""The version of CUDA that torch says it is built for: the installed one, one that a build for the CPU is given, and another.

Which of them a user has is not known, so that a file that names versions is traced with another one as well. Limits: torch's own
version is the installed one's always. Runs in the trace worker only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

# The first is given to a build of torch for the CPU.
_VERSIONS = ("13.0", "12.8")
_NAMES = frozenset({"version", "__version__"})


def installed() -> str:
    """The version that torch is built for, or would be."""
    return torch.version.cuda or _VERSIONS[0]


def another() -> str:
    """One that it could be built for as well."""
    return next(version for version in _VERSIONS if version != installed())


def answers(cuda: str) -> Iterator[tuple[Any, str, object]]:
    """Where torch tells of that version, and what a build for it says otherwise than this one."""
    if torch.version.hip is None and torch.version.cuda != cuda:
        yield torch.version, "cuda", cuda
        yield torch, "__version__", type(torch.__version__)(f"{torch.__version__.partition('+')[0]}+cu{cuda.replace('.', '')}")


def is_named(tree: ast.AST) -> bool:
    """Whether a file could ask for it: `torch.version.cuda` and `torch.__version__`, however it calls torch."""
    nodes = list(ast.walk(tree))
    # Where the name is Triton's, its version is no torch's.
    others = {"triton"} - {node.asname for node in nodes if isinstance(node, ast.alias)}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=module)) if module in others:
                continue
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.alias(name=name) if name in _NAMES:
                return True
            case ast.ImportFrom(module="torch.version") | ast.alias(name="torch.version"):
                return True
    return False
