"""These tests run vLLM itself. Without it they are skipped."""

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def vllm_is_installed() -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("needs vLLM beside kvdoctor: pip install -e '.[vllm]'")
