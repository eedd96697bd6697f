"""Which tests a version of Triton can run."""

from __future__ import annotations

import pytest

from referee.versions import check_triton, facts

needs_block_pointers = pytest.mark.skipif(
    "make_block_ptr" in facts(check_triton()).lacks,
    reason="this version of Triton has no block pointers",
)

needs_words_for_block_pointers = pytest.mark.skipif(
    tuple(map(int, check_triton().split(".")[:2])) >= (3, 8),
    reason="this version of Triton computes block pointers as plain ones, if it has them",
)
