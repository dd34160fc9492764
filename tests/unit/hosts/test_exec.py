"""`muster exec` on hosts: the part that this machine decides."""

from contextlib import contextmanager
from types import SimpleNamespace

from deploy.core.errors import STOPPED
from deploy.engine.wire import OUT
from deploy.hosts.act import within
from deploy.job.options import Options
from deploy.report.console import Console


def test_a_command_ends_when_nobody_reads_its_output_any_more(monkeypatch):
    """As with `| head`: a command that prints forever would block the hosts and this terminal."""
    console, printed = Console(), 0

    def endless():
        nonlocal printed
        for printed in range(1000):
            console.gone = printed == 2
            yield OUT, b"y\n"

    @contextmanager
    def run_inside(container, words):
        yield SimpleNamespace(frames=endless(), code=lambda: 0)

    @contextmanager
    def places(*asked):
        yield [within.Place(SimpleNamespace(name="a"), "muster-r1")]

    monkeypatch.setattr(within, "places", places)
    monkeypatch.setattr(within.reach, "on_host", lambda session: SimpleNamespace(run_inside=run_inside))
    assert within.exec_on_hosts(Options(hosts="a"), ["yes"], console) == STOPPED
    assert printed == 2
