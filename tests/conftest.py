"""What holds for every test."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from deploy.engine import client

HOME = Path(__file__).resolve().parent

# Records are sealed with a key of the user's: not with that of who runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="muster-tests-")
# A shell that runs the tests in the background has them ignore SIGINT, and programs they start inherit that: a Ctrl-C
# sent to one would never arrive. With a handler here they start with SIGINT's default, as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Fixtures that skip where there is no Docker engine, or no root.
_MACHINES = {"docker", "laboratory"}


def pytest_addoption(parser):
    """`make quick` asks for it."""
    parser.addoption("--quick", action="store_true", help="only tests that need neither torch, Docker nor root")


def pytest_configure(config):
    """With --quick, torch is out of reach: what needs it cannot be taken along by mistake."""
    if config.getoption("quick"):
        sys.modules["torch"] = None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A file of tests that imports torch has none to collect with --quick."""
    report = yield
    if collector.config.getoption("quick") and report.failed and "import of torch halted" in str(report.longrepr):
        report.outcome, report.longrepr, report.result = "passed", None, []
    return report


def pytest_collection_modifyitems(config, items):
    """With --quick: without the tests that are marked to need torch, or whose fixtures need Docker or root."""
    if config.getoption("quick"):
        needy = [item for item in items if item.get_closest_marker("torch") or _MACHINES & set(item.fixturenames)]
        config.hook.pytest_deselected(items=needy)
        items[:] = [item for item in items if item not in needy]


# What shares an engine's images or all cores runs in one process, in order; other files run beside it.
_TOGETHER = {"dist": "this machine", "image": "this machine", "lab": "laboratory"}
# What reads the code of the checkout: each file of it is parsed once.
_SOURCES = {
    f"test_{name}.py" for name in ("architecture", "contract", "exit_codes", "program", "security_page", "torch_names")
}
# About half of the time that tests/cluster takes.
_SECOND_RACK = {"test_phases.py", "test_recover.py", "test_secrets.py", "test_security.py"}


class _Together(LoadScopeScheduling):
    """Hands tests to processes by file, the folders above whole, and tests/cluster in two halves with a rack each."""

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        folder, name = file.split("/")[1:3]
        if folder == "cluster":
            return f"rack {int(name in _SECOND_RACK)}"
        return "sources" if file.rpartition("/")[2] in _SOURCES else _TOGETHER.get(folder, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What pytest-xdist asks for a way to share tests among processes."""
    return _Together(config, log)


@pytest.fixture(scope="session")
def docker():
    """Facts of the engine that answers here. MUSTER_REQUIRE_ENGINE=1 turns a skip into a failure."""
    facts = client.find_engine()
    if not facts.answers:
        (pytest.fail if os.environ.get("MUSTER_REQUIRE_ENGINE") == "1" else pytest.skip)(facts.reason)
    return facts
