"""Compiles kernels of a clean module to machine code for a target, without a GPU, in the sandbox.

The text holds only checked kernels (`kernels`). It still compiles in a sandbox, because hostile
input may crash, hang or inflate a compiler. Triton itself decides the specialisation, from stand-in
arguments.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

# Triton imports it at the first launch; here the fork server imports it once.
import triton.experimental.gluon  # noqa: F401
import triton.language as tl

from referee.compiling.binaries import TOOL_LOST, Binary, dump_binary
from referee.compiling.ttgir import takes_addresses, unread_atomics
from referee.sandbox.limits import TIME_UP
from referee.target import Target
from referee.triton_compat import compiler, jit_kernels, stand_in_driver
from referee.versions import check_triton

BASE_ADDRESS = 1 << 40
MAX_MESSAGE = 240
ADDRESSES = (
    "takes an address for a number, which is another one at every call; add offsets to "
    "pointers and nothing else"
)
NO_METHOD = "'int' object has no attribute"
A_NUMBER = (
    ": constants and integer arguments that are 1 are plain numbers; write tl.cast(N, "
    "tl.float32) for N.to(tl.float32)"
)
COMPILER_FAILED = "PassManager::run failed"
FAILED_ITSELF = (
    ": Triton's compiler failed, perhaps through an error in the compiler; write this in "
    "another way"
)
RECURSION = "a kernel's function calls itself, and Triton has no recursion; write a loop"
OUTSIDE = "Did you forget to add @triton.jit"
OF_NUMBERS = (
    "functions of `triton` take numbers that are known at compile time; use tl.cdiv, or "
    "pass the number to the kernel"
)

SKIPPABLE = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
"""Errors for which an autotuner skips a configuration: its needs, or a kernel's assertion."""


class ToolLost(Exception):
    """A tool of the compiler was killed from outside, so the kernel's state is unknown."""


class Pointer:
    """Stands in for a tensor: Triton reads its dtype and the alignment of its address."""

    def __init__(self, dtype: str, offset: int) -> None:
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._address = BASE_ADDRESS + offset

    def data_ptr(self) -> int:
        """An address with the view's alignment."""
        return self._address


def compile_entry(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Sandbox entry. JSON in: text, target, ptxas_version, requests (`specialise.request`). JSON
    out: one result each.

    A result is {"binary": ...} or {"error": one line, "skippable": bool}. The answer is TOOL_LOST
    if a tool of the compiler was killed from outside. The process ends with TIME_UP if a tool used
    up its processor time.
    """
    job = json.loads(payload)
    check_triton()
    compiler.prepare_compiler(job["ptxas_version"], os.path.join(scratch, "triton"))
    with stand_in_driver.active_driver(Target.from_json(job["target"])):
        try:
            module = import_text(job["text"], os.path.join(scratch, "kernels.py"))
        except Exception as error:
            results = [{"error": describe(error, "the constants"), "skippable": False}] * len(
                job["requests"]
            )
        else:
            try:
                results = [compile_one(module, request) for request in job["requests"]]
            except ToolLost:
                return TOOL_LOST
    return json.dumps(results).encode()


def import_text(text: str, path: str) -> ModuleType:
    """Imports a clean kernel module from a file that it writes."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("clean_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_one(module: ModuleType, request: dict[str, Any]) -> dict[str, Any]:
    """One result, as `compile_entry` sends it. Raises ToolLost."""
    kernel = getattr(module, request["kernel"])
    declared = jit_kernels.constexpr_names(kernel)
    arguments = {
        name: argument(value, constexpr and name not in declared)
        for name, value, constexpr in request["arguments"]
    }
    options = {"num_warps": request["num_warps"], "num_stages": request["num_stages"]}
    if request["maxnreg"] is not None:
        options["maxnreg"] = request["maxnreg"]
    log = io.StringIO()
    try:
        with contextlib.redirect_stdout(log):
            # A parameter may have the name of a launch option; Triton then uses its value for both.
            compiled = compiler.read_compiled(
                kernel.run(grid=(1,), warmup=True, **{**options, **arguments})
            )
        if compiled.needs:
            needs = f"kernel `{request['kernel']}` needs {', '.join(compiled.needs)}"
            return {"error": f"{needs}, which is not supported", "skippable": False}
        if takes_addresses(compiled.ttgir):
            return {"error": f"kernel `{request['kernel']}` {ADDRESSES}", "skippable": False}
    except Exception as error:
        if compiler.tool_ran_out_of_time(error):
            # This process ends as if it had run out of time itself, so that no autotuner skips the
            # configuration.
            os._exit(TIME_UP)
        if compiler.tool_was_ended(error):
            raise ToolLost from error
        told = describe(error, f"kernel `{request['kernel']}`", specialised(request["arguments"]))
        return {"error": told, "skippable": type(error).__name__ in SKIPPABLE}
    registers, spills = ptxas_report(log.getvalue())
    parameters, paths = passed(compiled.signature)
    binary = Binary(
        kernel=request["kernel"],
        key="",
        image=compiled.image,
        name=compiled.name,
        shared=compiled.shared,
        num_warps=compiled.num_warps,
        registers=registers,
        spills=spills,
        parameters=parameters,
        paths=paths,
        unread=unread_atomics(compiled.ttgir, str(module.__file__)),
    )
    return {"binary": dump_binary(binary)}


def argument(value: Any, wrapped: bool) -> Any:
    """The Python object for one argument of a request; `wrapped` makes it a constant."""
    if wrapped:
        return tl.constexpr(argument(value, False))
    if isinstance(value, dict):
        if "pointer" in value:
            return Pointer(value["pointer"], value["offset"])
        if "dtype" in value:
            return tl.dtype(value["dtype"])
        if "float" in value:
            return float(value["float"])
        return tuple(argument(item, False) for item in value["tuple"])
    return value


def passed(
    signature: tuple[tuple[str, Any], ...],
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Types of the arguments that a launch passes, in order, with their paths; no constants."""
    found: list[tuple[str, tuple[int, ...]]] = []

    def walk(kind: Any, path: tuple[int, ...]) -> None:
        if isinstance(kind, (tuple, list)):
            for position, inner in enumerate(kind):
                walk(inner, (*path, position))
        elif kind != compiler.CONSTANT:
            found.append((kind, path))

    for position, (_, kind) in enumerate(signature):
        walk(kind, (position,))
    return tuple(kind for kind, _ in found), tuple(path for _, path in found)


def ptxas_report(log: str) -> tuple[int | None, int | None]:
    """Registers per thread and bytes spilled, from ptxas's verbose output."""
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    return (int(registers[1]) if registers else None), (
        int(spills[1]) + int(spills[2]) if spills else None
    )


def specialised(arguments: Sequence[tuple[str, Any, bool]]) -> str:
    """The constants of a launch in words: constexpr arguments, and numbers equal to 1."""
    numbers = [
        f"{name} = {value}"
        for name, value, constexpr in arguments
        if not isinstance(value, dict) and (constexpr or value == 1)
    ]
    return f" launched with {', '.join(numbers)}"[:MAX_MESSAGE] if numbers else ""


def describe(error: BaseException, what: str, launched: str = "") -> str:
    """One line: the kernel, the innermost line of Triton's error, and the innermost message."""
    line = ""
    innermost: BaseException | None = error
    message = str(error)
    while innermost is not None:
        node, source = getattr(innermost, "node", None), getattr(innermost, "src", None)
        if (
            node is not None
            and isinstance(source, str)
            and 0 < getattr(node, "lineno", 0) <= len(source.splitlines())
        ):
            line = source.splitlines()[node.lineno - 1].strip()
        message = getattr(innermost, "error_message", None) or _last_line(innermost) or message
        innermost = innermost.__cause__
    at = f" at `{line[:80]}`" if line else launched
    told = " ".join(str(message).split())[:MAX_MESSAGE] if message else type(error).__name__
    if OUTSIDE in told and "triton." in line:
        return f"{what}{at}: {OF_NUMBERS}"
    if "KeyError" in told and "'clean_kernels." in told:
        return f"{what}{at}: {RECURSION}"
    hint = A_NUMBER if NO_METHOD in told else FAILED_ITSELF if COMPILER_FAILED in told else ""
    return f"{what}{at}: {told}{hint}"


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    return f"{kind}: {lines[0] if kind == 'PTXASError' else lines[-1]}" if lines else ""
