"""The laboratory needs root and a few tools; without them its tests are skipped and say why."""

import pytest

from lab import network


@pytest.fixture(scope="session")
def laboratory():
    """Skips the test if no laboratory is possible here."""
    reason = network.missing()
    if reason:
        pytest.skip(reason)
