"""The laboratory needs root and a few tools; where they are not there, its tests are skipped and say why."""

import pytest

from lab import network


@pytest.fixture(scope="session")
def laboratory():
    """Skips where there can be no laboratory."""
    reason = network.missing()
    if reason:
        pytest.skip(reason)
