"""docs/reference/ agrees with the code: each page made from a table is what the table would produce now."""

from pathlib import Path

import pytest

from tests.reference.pages import MAKERS


@pytest.mark.parametrize("page", MAKERS, ids=lambda page: page.stem)
def test_a_page_is_what_its_table_produces(page: Path) -> None:
    assert page.read_text() == MAKERS[page](), "python -m tests.reference writes it"
