"""The control side of the tests on a rack: what a test that failed leaves to the next one."""

import signal
from types import SimpleNamespace

from tests.cluster.control import Control


def test_a_command_that_was_left_in_the_background_ends_before_its_run_is_taken_away(tmp_path, monkeypatch):
    """As long as a deploy goes on, the locks of its hosts are held, and `down` may come before its containers."""
    control = Control(SimpleNamespace(hosts=["rack-1", "rack-2"], ssh_config=tmp_path, on=lambda *_: ""))
    left, over = control.background(["sleep", "600"]), control.background(["true"])
    assert over.wait(30) == 0
    codes = []
    monkeypatch.setattr(control, "fab", lambda *_: codes.append(left.poll()))
    control.clean()
    assert codes == [-signal.SIGKILL]
