"""The frames kernels are built in: how a program finds its elements, loads, reduces and stores them.

`RowFrame` handles one whole row a program, `TileFrame` several rows, `LoopFrame` one row in blocks. The first two write the
same statements for a body (a tile keeps its reduced axis), so a family describes its mathematics once. Row offsets are
64-bit: rows * columns may exceed 2^31. Places such as `$cols` are named later, by a `Naming`.
"""

from __future__ import annotations

from dataclasses import dataclass

from forge.grammar.design import TILE_WARPS, WARPS, Design

INDENT = "    "


@dataclass(frozen=True)
class Kernel:
    """A kernel and its host function, unnamed. `arguments` are the op's, in order."""

    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    body: tuple[str, ...]
    host: tuple[str, ...]

    def text(self) -> str:
        """Bare source: no imports, the kernel and `run`."""
        return kernel_text("$kernel", self.parameters, self.body) + "\n\n" + run_text(self.arguments, self.host)


def kernel_text(name: str, parameters: tuple[str, ...], body: tuple[str, ...]) -> str:
    """One @triton.jit function."""
    return f"@triton.jit\ndef {name}({', '.join(parameters)}):\n" + "".join(f"{INDENT}{line}\n" for line in body)


def run_text(arguments: tuple[str, ...], host: tuple[str, ...]) -> str:
    """The host function."""
    return f"def run({', '.join(arguments)}):\n" + "".join(f"{INDENT}{line}\n" for line in host)


class Frame:
    """Common parts: parameters, launch, loads of matrices, vectors and row scalars.

    `arguments` are the op's argument names; `matrices` those of them with shape (M, N). `per_row` marks ops with one result
    a row, `out_dtype` gives the output's allocation when it is not like the first matrix.
    """

    axis = "axis=0"
    needs_rows = False

    def __init__(
        self,
        design: Design,
        arguments: tuple[str, ...],
        matrices: tuple[str, ...],
        *,
        per_row: bool = False,
        eps: float | None = None,
        allocation: str | None = None,
    ) -> None:
        self.design, self.arguments, self.matrices, self.per_row, self.eps = design, arguments, matrices, per_row, eps
        self.allocation = allocation or self._allocation()

    def _allocation(self) -> str:
        first = self.matrices[0]
        return f"torch.empty(($M,), device={first}.device, dtype={first}.dtype)" if self.per_row else f"torch.empty_like({first})"

    @property
    def stored(self) -> tuple[str, ...]:
        return self.matrices if self.per_row else (*self.matrices, "out")

    @property
    def strided(self) -> bool:
        return self.design.strides and self.design.base != "advance"

    @property
    def row(self) -> str:
        return "$row"

    @property
    def eps_text(self) -> str:
        if self.design.eps == "literal":
            return f"{self.eps:g}".replace("e-0", "e-")
        return "eps" if self.design.eps == "argument" else "EPS"

    def step(self, matrix: str) -> str:
        return f"$stride_{matrix}" if self.strided else "$N"

    def parameters(self) -> tuple[str, ...]:
        names = [f"${argument}_ptr" for argument in self.arguments] + ["$out_ptr"]
        names += [f"$stride_{matrix}" for matrix in self.stored] if self.strided else []
        names += (["$M"] if self.needs_rows else []) + ["$N"]
        if self.eps is not None and self.design.eps != "literal":
            names.append("eps" if self.design.eps == "argument" else "EPS: tl.constexpr")
        return (*names, *(f"{name}: tl.constexpr" for name in self.constants()))

    def constants(self) -> tuple[str, ...]:
        return ("$BLOCK",)

    def call(self) -> list[str]:
        values = [*self.arguments, "$run_out"]
        if self.strided:
            values += [f"{'$run_out' if matrix == 'out' else matrix}.stride(0)" for matrix in self.stored]
        values += (["$M"] if self.needs_rows else []) + ["$N"]
        if self.eps is not None and self.design.eps != "literal":
            value = f"{self.eps:g}".replace("e-0", "e-")
            values.append(value if self.design.eps == "argument" else f"EPS={value}")
        return values

    def block(self) -> str:
        return "triton.next_power_of_2($N)"

    def warps(self) -> str:
        return WARPS[self.design.warps]

    def grid(self) -> str:
        return "($M,)"

    def setup(self) -> list[str]:
        return [f"$BLOCK = {self.block()}"]

    def host(self) -> tuple[str, ...]:
        launch = ", ".join([*self.call(), *(f"{name}={name}" for name in self.constants()), *filter(None, [self.warps()])])
        first = self.matrices[0]
        return (
            f"$M, $N = {first}.shape",
            f"$run_out = {self.allocation}",
            *self.setup(),
            f"$kernel[{self.grid()}]({launch})",
            "return $run_out",
        )

    def at(self, matrix: str, cols: str = "$cols") -> str:
        """Address of a block of a matrix row."""
        if self.design.base == "advance":
            return f"${matrix}_ptr + {cols}"
        if self.design.base == "offsets" and not self.strided and cols == "$cols":
            return f"${matrix}_ptr + $idx"
        return f"${matrix}_ptr + {self.row} * {self.step(matrix)} + {cols}"

    def load(self, matrix: str, other: str = "0.0", *, cols: str = "$cols", mask: str = "$mask") -> str:
        """Expression for a float32 block of a matrix."""
        return f"tl.load({self.at(matrix, cols)}, mask={mask}, other={other}).to(tl.float32)"

    def vector(self, name: str, *, cols: str = "$cols", mask: str | None = None) -> str:
        """Expression for a float32 block of a per-column vector."""
        return f"tl.load(${name}_ptr + {cols}, mask={mask or self.vector_mask}, other=0.0).to(tl.float32)"

    vector_mask = "$mask"

    def reduce(self, function: str, expression: str) -> str:
        return f"tl.{function}({expression}, axis=0)"

    def cast(self, expression: str) -> str:
        return f"({expression}).to($out_ptr.dtype.element_ty)" if " " in expression else f"{expression}.to($out_ptr.dtype.element_ty)"

    def store(self, expression: str, *, cols: str = "$cols", mask: str = "$mask") -> str:
        value = self.cast(expression) if self.design.cast_store else expression
        return f"tl.store({self.at('out', cols)}, {value}, mask={mask})"

    def row_scalar(self, name: str) -> str:
        return f"tl.load(${name}_ptr + {self.row})"

    def store_row(self, expression: str) -> str:
        value = self.cast(expression) if self.design.cast_store else expression
        return f"tl.store($out_ptr + {self.row}, {value})"

    def finish(self, body: list[str]) -> Kernel:
        return Kernel(self.arguments, self.parameters(), (*self.head(), *body), self.host())

    def advance(self) -> list[str]:
        if self.design.base != "advance":
            return []
        return [f"${matrix}_ptr += {self.row} * $N" for matrix in self.stored]

    def head(self) -> list[str]:
        raise NotImplementedError


class RowFrame(Frame):
    """One program a row, the whole row in one block."""

    def head(self) -> list[str]:
        lines = ["$row = tl.program_id(0).to(tl.int64)", *self.advance(), "$cols = tl.arange(0, $BLOCK)", "$mask = $cols < $N"]
        if self.design.base == "offsets" and not self.strided:
            lines.append("$idx = $row * $N + $cols")
        return lines


class TileFrame(Frame):
    """Several whole rows a program, as a two-dimensional block; made for short rows."""

    needs_rows = True
    vector_mask = "$cols < $N"

    @property
    def strided(self) -> bool:
        return self.design.strides

    @property
    def row(self) -> str:
        return "$rows"

    def constants(self) -> tuple[str, ...]:
        return ("$ROWS", "$BLOCK")

    def head(self) -> list[str]:
        lines = [
            "$rows = tl.program_id(0).to(tl.int64) * $ROWS + tl.arange(0, $ROWS)[:, None]",
            "$cols = tl.arange(0, $BLOCK)[None, :]",
            "$mask = ($rows < $M) & ($cols < $N)",
        ]
        return lines if self.strided else [*lines, "$idx = $rows * $N + $cols"]

    def at(self, matrix: str, cols: str = "$cols") -> str:
        if not self.strided and cols == "$cols":
            return f"${matrix}_ptr + $idx"
        return f"${matrix}_ptr + $rows * {self.step(matrix)} + {cols}"

    def reduce(self, function: str, expression: str) -> str:
        return f"tl.{function}({expression}, axis=1)[:, None]"

    def row_scalar(self, name: str) -> str:
        return f"tl.load(${name}_ptr + $rows, mask=$rows < $M, other=0)"

    def store_row(self, expression: str) -> str:
        value = self.cast(expression) if self.design.cast_store else expression
        return f"tl.store($out_ptr + $rows, {value}, mask=$rows < $M)"

    def grid(self) -> str:
        return "(triton.cdiv($M, $ROWS),)"

    def setup(self) -> list[str]:
        budget = 4096 if self.design.warps % 2 == 0 else 8192
        return [f"$BLOCK = {self.block()}", f"$ROWS = max(1, min(16, {budget} // $BLOCK))"]

    def warps(self) -> str:
        return TILE_WARPS[self.design.warps % 2]


class LoopFrame(Frame):
    """One program a row, the row read in blocks of a fixed size, once a pass."""

    def head(self) -> list[str]:
        return ["$row = tl.program_id(0).to(tl.int64)", *self.advance()]

    def at(self, matrix: str, cols: str = "$cols") -> str:
        return f"${matrix}_ptr + {cols}" if self.design.base == "advance" else f"${matrix}_ptr + $row * {self.step(matrix)} + {cols}"

    def block(self) -> str:
        return str(self.design.block)

    def setup(self) -> list[str]:
        return []

    def warps(self) -> str:
        return "num_warps=4" if self.design.block == 1024 else "num_warps=8"

    def host(self) -> tuple[str, ...]:
        launch = ", ".join([*self.call(), f"$BLOCK={self.block()}", self.warps()])
        return (
            f"$M, $N = {self.matrices[0]}.shape",
            f"$run_out = {self.allocation}",
            f"$kernel[{self.grid()}]({launch})",
            "return $run_out",
        )

    def loop(self, lines: list[str], *, masked: bool = True) -> list[str]:
        """One pass over the row. With the design's inline mask, `$mask` is written out where it is used."""
        head = ["$cols = $start + tl.arange(0, $BLOCK)"]
        if self.design.inline_mask:
            lines = [line.replace("$mask", "$cols < $N") for line in lines]
        elif masked:
            head.append("$mask = $cols < $N")
        return ["for $start in range(0, $N, $BLOCK):", *(INDENT + line for line in (*head, *lines))]


FRAMES = {"row": RowFrame, "tile": TileFrame, "loop": LoopFrame}
