"""A `try` in host code: what fails in it fails, and no way round it is left open."""

from __future__ import annotations

import pytest

from referee.reading.screen import screen
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body

BEFORE = """
import contextlib

class ShapeError(ValueError):
    pass

@contextlib.contextmanager
def guard():
    %s

"""
GUARD = "yield"


def rejected(*lines: str, guard: str = GUARD) -> str:
    """The guard and the reason, or ""."""
    rejection = screen(COPY + body(ALLOCATE, *lines, "return y", before=BEFORE % guard))[1]
    return f"{rejection.guard}: {rejection.reason}" if rejection is not None else ""


PASSES = [
    ("except Exception as e:", 'raise RuntimeError(f"the launch failed: {e}") from e'),
    ("except (RuntimeError, ShapeError) as error:", 'raise ShapeError("the launch failed") from error'),
    ("except ValueError:", 'raise NotImplementedError("no such shape") from None'),
    ("except ValueError as e:", "raise e"),
    ("except ValueError as e:", "raise e from None"),
    ("except AttributeError:", "raise"),
    ("except:", "raise"),
    ("except ValueError:", "raise\n    except TypeError:\n        raise"),
    ("finally:", "pass"),
    ("except ValueError:", "raise\n    finally:\n        pass"),
]
HIDES = [
    ("except Exception:", "pass"),
    ("except Exception:", "y = torch.zeros_like(x)"),
    ("except Exception:", "return x"),
    ("except Exception:", "y.zero_()\n        raise"),
    ("except ValueError:", "raise\n    except TypeError:\n        pass"),
    # What hasattr, map and the import of a file take for an answer.
    ("except Exception:", "raise AttributeError('no')"),
    ("except Exception:", "raise StopIteration"),
    ("except Exception:", "raise ImportError('no')"),
    ("except Exception:", "raise RuntimeError(next(iter(())))"),
    ("except Exception:", "raise RuntimeError(f'{next(iter(()))}')"),
    ("except Exception:", "raise RuntimeError('no') from x.start"),
    ("except Exception:", "raise next(iter(()))"),
    ("except Exception as e:", "raise RuntimeError(f'{e:{x.start}}')"),
    ("except Exception:", "raise error"),
    # Everything there is, also what ends a trace.
    ("except:", "raise RuntimeError('no')"),
    ("except BaseException:", "raise RuntimeError('no')"),
    ("except next(iter(())):", "raise"),
    ("except (ValueError, x.start):", "raise"),
    ("except* ValueError:", "raise"),
    # What fails there takes the place of what failed before.
    ("finally:", "y = x"),
    ("finally:", "return x"),
    ("finally:", "next(iter(()))"),
    ("finally:", "done or x.start"),
    ("finally:", "raise AttributeError('no')"),
    ("except ValueError:", "raise\n    finally:\n        return x"),
    ("except ValueError:", "raise\n    else:\n        y = x"),
]


@pytest.mark.parametrize("lines", PASSES)
def test_what_only_words_an_error_passes(lines: tuple[str, str]) -> None:
    handler, inside = lines
    assert rejected("try:", f"    {LAUNCH}", handler, f"    {inside}") == ""
    assert rejected(guard=f"try:\n        yield\n    {handler}\n        {inside}") == ""


@pytest.mark.parametrize("lines", HIDES)
def test_what_could_hide_one_is_refused(lines: tuple[str, str]) -> None:
    handler, inside = lines
    error = "error = ValueError('no')" if "raise error" in inside else "done = False"
    found = rejected(error, "try:", f"    {LAUNCH}", handler, f"    {inside}")
    assert found.startswith("try_except: "), found


def test_an_error_of_a_name_that_means_something_else_is_refused() -> None:
    assert rejected("ValueError = x.new_zeros", "try:", f"    {LAUNCH}", "except TypeError:", "    raise ValueError('no')") != ""
    assert rejected("ShapeError = x", "try:", f"    {LAUNCH}", "except ShapeError:", "    raise") != ""


def test_what_is_tried_is_looked_at() -> None:
    assert "torch_compute" in rejected("try:", "    y = x.softmax(-1)", "except ValueError:", "    raise")


def test_a_finally_is_told_apart() -> None:
    assert "`finally` does" in rejected("try:", f"    {LAUNCH}", "finally:", "    y = x")
