"""The settings for a build of llama.cpp that the doctor names."""

from __future__ import annotations

from kmint_tui.doctor.llama import CUDA_BUILD, PARTS


def test_the_named_build_settings_are_in_the_package() -> None:
    assert f"-DCMAKE_PROJECT_INCLUDE={PARTS} " in CUDA_BUILD
    assert "set(LLAMA_BUILD_COMMON OFF)" in PARTS.read_text(encoding="utf-8").splitlines()
