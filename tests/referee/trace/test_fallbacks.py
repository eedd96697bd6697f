"""Code for tensors that are not on the GPU: torch may compute there, and nowhere near."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

CELL = rows("x", shape=(3, 100))
SLOW = "import torch.nn.functional as F\n\ndef slow(x):\n    return F.silu(x).exp()\n"


def candidate(*lines: str, before: str = "") -> str:
    """A candidate that is right, with these lines in front in `run`."""
    return COPY + body(*lines, ALLOCATE, LAUNCH, "return y", before=before)


PASSES = {
    "is_cuda": candidate("if not x.is_cuda: return torch.softmax(x, -1)"),
    "is_cpu": candidate("if x.is_cpu:", "    h = x.float()", "    return (h.exp() / h.exp().sum(-1, keepdim=True)).to(x.dtype)"),
    "type": candidate("if x.device.type != 'cuda': return F.silu(x)", before="import torch.nn.functional as F\n"),
    "cpu": candidate("if x.device.type == 'cpu' or not x.is_cuda: return x.relu()"),
    "after a check": candidate("if x.dim() != 2: raise ValueError('rows')", "if not x.is_cuda: return x.relu()", "x = x.contiguous()"),
    "else": candidate("if x.is_cuda and not x.is_cpu: pass", "else: return torch.relu(x)"),
    "after it": COPY + body("if x.is_cuda:", f"    {ALLOCATE}", f"    {LAUNCH}", "    return y", "z = torch.relu(x)", "return z"),
    "helper": candidate("if not x.is_cuda: return slow(x)", before=SLOW),
    "beside a test": candidate("if not x.is_cuda: return torch.relu(x)", before="def test():\n    run(torch.empty(1))\n"),
}
REFUSED = {
    "there": candidate("if x.is_cuda: return torch.relu(x)"),
    "both": candidate("if not x.is_cuda or x.dim() == 2: return torch.relu(x)"),
    "one of two": candidate("if not x.is_cuda and x.dim() == 2: return torch.relu(x)"),
    "the rest": candidate("if not x.is_cuda: return x", "z = torch.relu(x)"),
    "the rest of what may go on": candidate("if x.is_cuda: z = x", "z = torch.relu(x)"),
    "else": candidate("if not x.is_cuda: return x", "else: z = torch.relu(x)"),
    "other than the CPU": candidate("if x.device.type != 'cpu': return torch.relu(x)"),
    "other device": candidate("if x.device.type == 'xpu': return torch.relu(x)"),
    "rebound": candidate("x = torch.empty(1)", "if not x.is_cuda: return torch.relu(x)"),
    "rebound by a def": candidate("def x(): pass", "if not x.is_cuda: return torch.relu(x)"),
    "of another": candidate("z = torch.empty(1)", "if not z.is_cuda: return torch.relu(x)"),
    "with a default": COPY + "\nMODE = 1\n\ndef run(x, z=MODE):\n    if not z.is_cuda: return torch.relu(x)\n    return x\n",
    "in a helper": candidate("slow(x)", before="def slow(z):\n    if not z.is_cuda: return torch.relu(z)\n"),
    "helper that runs": candidate("if not x.is_cuda: return slow(x)", "slow(x)", before=SLOW),
    "run called by the file": candidate(
        "if not x.is_cuda: return torch.relu(x)", "again(x)", before="def again(x):\n    return run(torch.empty(1))\n"
    ),
    "run wrapped": COPY
    + "\ndef wrap(f):\n    return lambda x: f(torch.empty(1))\n\n@wrap\n"
    + "def run(x):\n    if not x.is_cuda: return torch.relu(x)\n    return x\n",
    "in place": candidate("if not x.is_cuda: return x.relu_()"),
    "read": candidate("if not x.is_cuda: return torch.relu(x) * x.item()"),
    "state": candidate("if not x.is_cuda: KEPT.append(1)", before="KEPT = []\n"),
    "sorted in place": candidate("if not x.is_cuda: KEPT.sort()", before="KEPT = []\n"),
    "settings": candidate("if not x.is_cuda: torch.set_num_threads(1)"),
    "random": candidate("if not x.is_cuda: return torch.bernoulli(x)"),
    "modules": candidate("if not x.is_cuda: return F.importlib.import_module('os')", before="import torch.nn.functional as F\n"),
    "words": candidate("if not x.is_cuda: return eval('x')"),
    "try": candidate("if not x.is_cuda:", "    try:", "        return x", "    except Exception:", "        return None"),
    "class": candidate("if not x.is_cuda:", "    class A: pass"),
    "global": candidate("if not x.is_cuda:", "    global KEPT", "    KEPT = 2", before="KEPT = 1\n"),
}


@pytest.mark.parametrize("name", PASSES)
def test_torch_may_compute_what_no_input_on_the_gpu_comes_to(name: str, tmp_path: Path) -> None:
    assert screen(PASSES[name])[1] is None
    assert "plans" in trace_source(PASSES[name], str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, len(CELL.outputs))])


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_else_is_let_through_by_that(name: str) -> None:
    assert screen(REFUSED[name])[1] is not None


def test_the_tracer_would_refuse_what_torch_computes_there(tmp_path: Path) -> None:
    source = candidate("if not x.is_cuda or True: return torch.softmax(x, -1)")
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, len(CELL.outputs))])
    assert told["rejection"]["guard"] == "torch_compute"
