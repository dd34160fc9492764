"""What holds for every test."""

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

import pytest
from xdist.scheduler import LoadScopeScheduling

from deploy.core import program
from deploy.engine import client
from deploy.job import consent
from deploy.report.console import Console
from tests import hinted, tiers

HOME = Path(__file__).resolve().parent

# Records are sealed with a key of the user's: not with that of who runs the tests.
_STATE = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="muster-tests-")
# Nor do tests read or add to what that user has allowed folders.
os.environ["XDG_CONFIG_HOME"] = f"{_STATE}/config"
# A shell that runs the tests in the background has them ignore SIGINT and SIGQUIT, and programs they start inherit
# that: a Ctrl-C sent to one would never arrive. Here they start with the defaults, as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# The same for nohup, and a terminal that goes away.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


# Fixtures that skip where there is no Docker engine, or no root.
_MACHINES = {"docker", "laboratory"}
# How many tests of each file `make test` leaves to `make test-all`.
_LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    """`make quick` asks for the one, `make test` for the other."""
    parser.addoption("--quick", action="store_true", help="only short tests that need neither torch, Docker nor root")
    tiers.add_option(parser)


def pytest_configure(config):
    """With --quick, torch is out of reach: what needs it cannot be taken along by mistake."""
    config.add_cleanup(lambda: shutil.rmtree(_STATE, ignore_errors=True))
    hinted.collect()
    if config.getoption("quick"):
        sys.modules["torch"] = None
        gc.disable()  # a sixth of the time, for processes that end in seconds
        if hasattr(config, "workerinput"):
            atexit.register(os._exit, 0)  # Python would free each object first, for three seconds
    if not hasattr(config, "workerinput") and not config.option.basetemp:
        _keep_files_in_memory(config)


def _keep_files_in_memory(config):
    """Thousands of small files are made and deleted: a busy disk takes as long for them as the tests take."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return
    room = os.statvfs(memory)
    enough = config.getoption("quick") or room.f_bavail * room.f_frsize > 8 << 30
    if enough and not room.f_flag & os.ST_NOEXEC:
        # Not --basetemp: every process that is forked empties that.
        root = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="muster-tests-", dir=memory)
        config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))


# The words for `import torch`, and for `from torch.distributed... import`.
_NO_TORCH = re.compile("import of torch halted|'torch' is not a package")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A file of tests that imports torch has none to collect with --quick."""
    report = yield
    if collector.config.getoption("quick") and report.failed and _NO_TORCH.search(str(report.longrepr)):
        report.outcome, report.longrepr, report.result = "passed", None, []
    return report


def pytest_collection_modifyitems(config, items):
    """With --quick: without the tests that are marked to need torch or long, or whose fixtures need Docker or root."""
    if config.getoption("quick"):
        needy = [
            item
            for item in items
            if any(map(item.get_closest_marker, ("torch", "long"))) or _MACHINES & set(item.fixturenames)
        ]
        config.hook.pytest_deselected(items=needy)
        items[:] = [item for item in items if item not in needy]
    others = set(tiers.left_out(items) if config.getoption("daily") else [])
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]
    config.stash[_LEFT_OUT] = Counter(item.nodeid.partition("::")[0] for item in others)
    # What takes longest in one piece begins first.
    first = _WAITING if config.getoption("quick") else _LONGEST
    items.sort(key=lambda item: scope_of(item.nodeid) not in first)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A process of pytest-xdist tells the first one what it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(_LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every process has left out the same; one that crashed does not tell."""
    if hasattr(node, "workeroutput"):
        node.config.stash[_LEFT_OUT] = Counter(node.workeroutput["left_out"])


def pytest_terminal_summary(terminalreporter, config):
    """What was left to `make test-all` is said beside what was skipped."""
    for line in tiers.lines(config.stash.get(_LEFT_OUT, {})):
        terminalreporter.write_line(f"LEFT TO TEST-ALL {line}")


# What shares an engine's images, or the runs of this checkout, runs in one process; other files run beside it.
_TOGETHER = {"image": "this machine", "lab": "laboratory"}
_OF_CHECKOUT = {"tests/dist/test_up.py", "tests/dist/test_within_here.py"}
# What reads the code of the checkout: each file of it is parsed once.
_SOURCES = {
    *(f"test_{name}.py" for name in ("architecture", "budget", "contract", "exit_codes", "program")),
    *("test_security_page.py", "test_torch_names.py", "test_own_words.py", "test_options.py"),
    *("test_started_programs.py", "test_glossary.py", "test_table.py"),
}
# A process that runs one of these starts a rack of its own: two racks keep two cores busy.
_SECOND_RACK = {"going_on", "membership", "overlay", "phases", "recover", "secrets", "security"}
_LONGEST = {"rack 1", "rack 2", "this machine"}
# These wait for processes more than they compute: others run meanwhile, as long as there are others.
_WAITING = {
    *("sources", "tests/unit/send/test_folder_push.py", "tests/unit/local/test_processes.py"),
    *("tests/unit/trainer/train/test_stuck.py", "tests/unit/preflight/test_probe.py", "tests/unit/host/test_facts.py"),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("agent/test_handover", "agent/test_output", "agent/test_turn")),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("beside/test_on_end", "beside/test_telemetry")),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("hang/test_stacks", "membership/test_register")),
    *("tests/unit/trainer/node/files/test_neighbour_copies.py", "tests/unit/trainer/node/ending/test_doing_now.py"),
}


def scope_of(nodeid):
    """What runs in one process, in order."""
    file = nodeid.partition("::")[0]
    folder, _, name = file.removeprefix("tests/").partition("/")
    if folder == "cluster":
        return "rack 2" if name.removeprefix("test_").removesuffix(".py") in _SECOND_RACK else "rack 1"
    if file in _OF_CHECKOUT:
        return "this machine"
    return "sources" if file.rpartition("/")[2] in _SOURCES else _TOGETHER.get(folder, file)


class _Together(LoadScopeScheduling):
    """Hands tests to processes by their scopes."""

    def _split_scope(self, nodeid):
        return scope_of(nodeid)


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


@pytest.fixture(autouse=True)
def hints_are_commands():
    """A fault that a test makes has no hint with a command, or an option of one, that there is not."""
    yield
    if wrong := hinted.wrong_hints():
        pytest.fail("\n".join(wrong))


@pytest.fixture(autouse=True)
def nobody_has_typed(monkeypatch):
    """Hosts of one name are in many tests: what the user types for one is known to that test alone."""
    monkeypatch.setattr(program, "_TYPED", ContextVar("typed", default=MappingProxyType({})))


@pytest.fixture
def allowed():
    """Every folder may have what it asks for, in this process: for tests that are about something else."""
    with consent.asking(consent.ConsentGate(Console, allow=True)):
        yield
