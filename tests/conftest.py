"""Settings, hooks and fixtures for every test."""

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

# Records are sealed with a key of the user's; tests must not use the key of whoever runs them.
_STATE = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="muster-tests-")
# Nor may tests read, or add to, the list of folders that this user has allowed.
os.environ["XDG_CONFIG_HOME"] = f"{_STATE}/config"
# If a shell runs the tests in the background, they ignore SIGINT and SIGQUIT, and so do the programs that they start: a
# Ctrl-C sent to such a program would never arrive. With the defaults restored, programs start as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# The same holds for SIGHUP, which nohup ignores and a closing terminal sends.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


# Fixtures that skip a test if there is no Docker engine, or no root.
_MACHINES = {"docker", "laboratory"}
# The number of tests of each file that `make test` leaves to `make test-all`.
_LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    """Add the options of `make quick` and `make test`."""
    parser.addoption("--quick", action="store_true", help="only short tests that need neither torch, Docker nor root")
    tiers.add_option(parser)


def pytest_configure(config):
    """With --quick, torch cannot be imported: no test that needs it can run by mistake."""
    config.add_cleanup(lambda: shutil.rmtree(_STATE, ignore_errors=True))
    hinted.collect()
    if config.getoption("quick"):
        sys.modules["torch"] = None
        gc.disable()  # saves a sixth of the time, in processes that end within seconds
        if hasattr(config, "workerinput"):
            atexit.register(os._exit, 0)  # otherwise Python frees each object first, for three seconds
    if not hasattr(config, "workerinput") and not config.option.basetemp:
        _keep_files_in_memory(config)


def _keep_files_in_memory(config):
    """Put the tests' temporary files into memory.

    The tests make and delete thousands of small files: on a busy disk, that takes as long as the tests themselves.
    """
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return
    room = os.statvfs(memory)
    enough = config.getoption("quick") or room.f_bavail * room.f_frsize > 8 << 30
    if enough and not room.f_flag & os.ST_NOEXEC:
        # --basetemp would not do: each forked process empties that folder. A socket's path may have 107 characters, and
        # pytest's own folders below this one have up to 70.
        root = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="muster-", dir=memory)
        config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))


# The messages of a failed `import torch` and of a failed `from torch.distributed... import`.
_NO_TORCH = re.compile("import of torch halted|'torch' is not a package")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """With --quick, a test file that imports torch counts as a file without tests."""
    report = yield
    if collector.config.getoption("quick") and report.failed and _NO_TORCH.search(str(report.longrepr)):
        report.outcome, report.longrepr, report.result = "passed", None, []
    return report


def pytest_collection_modifyitems(config, items):
    """Deselect tests: with --quick those that need torch, Docker or root or are long; with --daily those left out."""
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
    # The groups that take longest without a break start first.
    first = _WAITING if config.getoption("quick") else _LONGEST
    items.sort(key=lambda item: scope_of(item.nodeid) not in first)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A worker of pytest-xdist reports to the main process which tests it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(_LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take the report of a worker: all of them left out the same tests; a worker that crashed sends none."""
    if hasattr(node, "workeroutput"):
        node.config.stash[_LEFT_OUT] = Counter(node.workeroutput["left_out"])


def pytest_terminal_summary(terminalreporter, config):
    """Print next to the skipped tests how many tests were left to `make test-all`."""
    for line in tiers.lines(config.stash.get(_LEFT_OUT, {})):
        terminalreporter.write_line(f"LEFT TO TEST-ALL {line}")


# Tests that share an engine's images, or the runs of this checkout, run in one process; other files run next to it.
_TOGETHER = {"image": "this machine", "lab": "laboratory"}
_OF_CHECKOUT = {"tests/dist/test_up.py", "tests/dist/test_within_here.py"}
# Tests that read the checkout's code run in one process, so that each file is parsed only once.
_SOURCES = {
    *(f"test_{name}.py" for name in ("architecture", "budget", "contract", "exit_codes", "program")),
    *("test_security_page.py", "test_torch_names.py", "test_own_words.py", "test_options.py"),
    *("test_started_programs.py", "test_glossary.py", "test_table.py"),
}
# A process that runs one of these starts its own rack: two racks keep two cores busy.
_SECOND_RACK = {"going_on", "membership", "overlay", "phases", "recover", "secrets", "security"}
_LONGEST = {"rack 1", "rack 2", "this machine"}
# These tests mostly wait for processes: while they wait, others run, as long as there are others.
_WAITING = {
    *("sources", "tests/unit/send/test_folder_push.py", "tests/unit/local/test_processes.py"),
    *("tests/unit/trainer/train/test_stuck.py", "tests/unit/preflight/test_probe.py", "tests/unit/host/test_facts.py"),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("agent/test_handover", "agent/test_output", "agent/test_turn")),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("beside/test_on_end", "beside/test_telemetry")),
    *(f"tests/unit/trainer/node/{name}.py" for name in ("hang/test_stacks", "membership/test_register")),
    *("tests/unit/trainer/node/files/test_neighbour_copies.py", "tests/unit/trainer/node/ending/test_doing_now.py"),
    *("tests/unit/trainer/node/agent/test_within.py", "tests/unit/trainer/test_refusal.py"),
    *("tests/unit/trainer/node/test_roles.py", "tests/unit/hosts/test_why.py", "tests/unit/send/test_sdists.py"),
    "tests/unit/job/test_pairs.py",
}


def scope_of(nodeid):
    """The name of the group of tests that this test belongs to; a group runs in one process, in order."""
    file = nodeid.partition("::")[0]
    folder, _, name = file.removeprefix("tests/").partition("/")
    if folder == "cluster":
        return "rack 2" if name.removeprefix("test_").removesuffix(".py") in _SECOND_RACK else "rack 1"
    if file in _OF_CHECKOUT:
        return "this machine"
    return "sources" if file.rpartition("/")[2] in _SOURCES else _TOGETHER.get(folder, file)


class _Together(LoadScopeScheduling):
    """Distributes tests to processes by their groups."""

    def _split_scope(self, nodeid):
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Called by pytest-xdist for a scheduler that distributes the tests among processes."""
    return _Together(config, log)


@pytest.fixture(scope="session")
def docker():
    """The facts of the engine on this machine. MUSTER_REQUIRE_ENGINE=1 turns a skip into a failure."""
    facts = client.find_engine()
    if not facts.answers:
        (pytest.fail if os.environ.get("MUSTER_REQUIRE_ENGINE") == "1" else pytest.skip)(facts.reason)
    return facts


@pytest.fixture(autouse=True)
def hints_are_commands():
    """Fail a test if a hint of its errors or findings has a command, or an option of it, that does not exist."""
    yield
    if wrong := hinted.wrong_hints():
        pytest.fail("\n".join(wrong))


@pytest.fixture(autouse=True)
def nobody_has_typed(monkeypatch):
    """Many tests have hosts of the same name: what a user typed for a host must not leak into another test."""
    monkeypatch.setattr(program, "_TYPED", ContextVar("typed", default=MappingProxyType({})))


@pytest.fixture
def allowed():
    """Allow every folder what it asks for, in this process: for tests about something else."""
    with consent.asking(consent.ConsentGate(Console, allow=True)):
        yield
