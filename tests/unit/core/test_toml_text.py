"""Somebody else's TOML costs little time: a text that would cost too much for its size is refused in words."""

from __future__ import annotations

import pytest

from deploy.core import toml_text
from lab import waiting


@pytest.mark.holds("reader-budget")
@pytest.mark.parametrize("text", [
    "a." * 500_000 + "b = 1", "a = " + "[" * 900_000, "a = " + "{x=" * 300_000, "\n" * 1_000_000,
    "a = 0x" + "f" * 900_000,
    "a = [" + "1," * 500_000 + "]", "".join(f"[t{number}]\n" for number in range(120_000)),
])  # fmt: skip
def test_a_text_that_costs_too_much_is_refused(text):
    with waiting.spending_little(), pytest.raises(ValueError, match=r"more than|nested"):
        toml_text.loads(text)


@pytest.mark.long
def test_a_large_honest_file_is_read():
    row = '[[package]]\nname = "a"\nversion = "1.0"\nsource = { registry = "https://example.org/simple" }\n'
    row += (
        'wheels = [{ url = "https://example.org/a-1.0-py3-none-any.whl", hash = "sha256:'
        + "0" * 64
        + '", size = 5 }]\n'
    )
    assert len(toml_text.loads(row * 4000)["package"]) == 4000
