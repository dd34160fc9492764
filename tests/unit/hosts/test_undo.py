"""The message when a start could not be undone."""

from types import SimpleNamespace

from deploy.core.errors import DeployError
from deploy.hosts import nodes
from deploy.job.inventory import Host


def test_a_lost_host_is_named_with_the_command_that_removes_what_is_left():
    """`muster join` once did not mention it."""

    def lost(argv, **_):
        raise DeployError("d: connection lost")

    hosts = {name: Host(name, name, 2222, "me") for name in "ad"}
    runs = {"a": lambda argv, **_: SimpleNamespace(out=""), "d": lost}
    sessions = [SimpleNamespace(name=name, host=host, run=runs[name]) for name, host in hosts.items()]
    made = [SimpleNamespace(host=name, start="7f-0", folder="/r1", fresh=True, run="r1") for name in hosts]
    said = []
    left = nodes.undo(sessions, made, said.append)
    assert left == "something may be left on me@d:2222; to remove it: muster down --hosts me@d:2222 --run r1"
    assert said == ["d: connection lost", left]
    assert nodes.undo(sessions[:1], made, said.append) == ""
