"""The control side of the rack tests: what a failed test leaves behind for the next one."""

import signal
from types import SimpleNamespace

from tests.cluster.control import Control


def test_a_command_left_in_the_background_is_ended_before_its_run_is_removed(tmp_path, monkeypatch):
    """While a deploy runs, it holds the locks of its hosts, and `down` may come before it has made its containers."""
    control = Control(SimpleNamespace(hosts=["rack-1", "rack-2"], ssh_config=tmp_path, on=lambda *_: ""))
    left, over = control.background(["sleep", "600"]), control.background(["true"])
    assert over.wait(30) == 0
    codes = []
    monkeypatch.setattr(control, "fab", lambda *_: codes.append(left.poll()))
    control.clean()
    assert codes == [-signal.SIGKILL]
