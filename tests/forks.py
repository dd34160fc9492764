"""`make quick`: collect the tests once, and share them among forks of the collecting process.

Each worker of pytest-xdist collects all tests for itself, which took 8 s of 40 s of processor time (decision 0119).
This plugin collects once and forks, which is safe as long as the tests are only imported, have started no thread and
use no torch.
`python -m pytest -p tests.forks --forks 8 ...`
"""

import itertools
import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection, wait

import pytest

from tests.conftest import scope_of

_NUMBER = 4  # bytes of a group's number in the pipe


def pytest_addoption(parser):
    """Add the option for the number of processes."""
    parser.addoption("--forks", type=int, default=0, help="share the tests among so many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    """Replace pytest's own loop: fork, hand out the groups of tests one by one, and report what the forks send."""
    count = session.config.getoption("forks")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    groups = [list(group) for _, group in itertools.groupby(session.items, key=lambda item: scope_of(item.nodeid))]
    todo, filler = os.pipe()
    os.write(filler, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(groups))))
    os.close(filler)
    forks = dict(_fork(session, todo, groups) for _ in range(count))
    try:
        _follow(session, forks)
    finally:
        for pid in forks.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return True


def _fork(session, todo, groups):
    """Start one fork; returns the connection that its reports come from, and its process id."""
    here, there = multiprocessing.Pipe(duplex=False)
    if pid := os.fork():
        there.close()
        return here, pid
    try:
        _run(session, todo, groups, there)
    finally:
        os._exit(0)


def _run(session, todo, groups, out: Connection):
    """The work of a fork: take a group, run its tests, send their reports, take the next group."""
    config = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # otherwise all forks would write to one file
    capture.start_global_capturing()
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(dir=os.environ["XDG_STATE_HOME"])
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Sender(config, out))
    items = itertools.chain.from_iterable(groups[number] for number in _numbers(todo))
    ahead = next(items, None)
    while ahead is not None:
        item, ahead = ahead, next(items, None)  # so pytest ends only fixtures that the next test does not need
        out.send(("start", item.nodeid))
        config.hook.pytest_runtest_protocol(item=item, nextitem=ahead)
        out.send(("end", item.nodeid))


def _numbers(todo):
    while taken := os.read(todo, _NUMBER):
        yield int.from_bytes(taken, "big")


class _Sender:
    """A fork's plugin: sends its reports to the process that collected the tests."""

    def __init__(self, config, out: Connection):
        self._config, self._out = config, out

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "call":  # these are neither counted nor shown
            return
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._out.send(("report", data))


def _follow(session, forks):
    """Report everything that the forks send. If a fork ends before its test has ended, that test fails."""
    hook, config = session.config.hook, session.config
    running, left = {}, {item.nodeid: item for item in session.items}
    open_ends = list(forks)
    while open_ends:
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        for end in wait(open_ends):
            try:
                kind, what = end.recv()
            except EOFError:
                open_ends.remove(end)
                continue
            if kind == "report":
                report = hook.pytest_report_from_serializable(config=config, data=what)
                hook.pytest_runtest_logreport(report=report)
            elif kind == "start":
                running[end] = what
            else:
                hook.pytest_runtest_logfinish(nodeid=what, location=left.pop(what).location)
                del running[end]
    for nodeid, item in left.items():
        words = "its process ended" if nodeid in running.values() else "not run: the process that had it is gone"
        report = pytest.TestReport(nodeid, item.location, {}, "failed", f"{nodeid}: {words}", "call")
        hook.pytest_runtest_logreport(report=report)
