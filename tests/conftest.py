"""What holds for every test."""

import os
import signal

import pytest

from deploy import engine

# A shell that runs the tests in the background has them ignore SIGINT, and programs they start inherit that: a Ctrl-C
# sent to one would never arrive. With a handler here they start with SIGINT's default, as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def docker():
    """Facts of the engine that answers here. MUSTER_REQUIRE_ENGINE=1 turns a skip into a failure."""
    facts = engine.find_engine()
    if not facts.answers:
        (pytest.fail if os.environ.get("MUSTER_REQUIRE_ENGINE") == "1" else pytest.skip)(facts.reason)
    return facts
