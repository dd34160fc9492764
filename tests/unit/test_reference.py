"""docs/reference/ says what the code does: each page that is made from a table is as it would be made now."""

from pathlib import Path

import pytest

from tests.reference.pages import MAKERS


@pytest.mark.parametrize("page", MAKERS, ids=lambda page: page.stem)
def test_a_page_is_made_from_its_table(page: Path) -> None:
    assert page.read_text() == MAKERS[page](), "python -m tests.reference writes it"
