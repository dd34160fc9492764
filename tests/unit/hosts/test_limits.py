"""A probe that crashes silently in a container with a small stack is explained by the stack limit; no other is."""

import dataclasses
from types import SimpleNamespace

import pytest

from deploy.core.errors import CommandEnded
from deploy.door.session import Done
from deploy.host.reached import NoAnswer, ReachedHosts
from deploy.hosts.start import probe_ends
from deploy.job.cluster import Cluster
from deploy.preflight import judge
from lab.answers import answers
from tests.hosts import FACTS

LIMITS = "Limit      Soft Limit   Hard Limit   Units\nMax stack size            {}                24576    bytes\n"


class Session:
    """A host whose containers have this stack limit."""

    name, host = "b", SimpleNamespace(mounts=(), interface="", environment={})

    def __init__(self, stack):
        self.stack, self.asked = stack, 0

    def run(self, argv, **more):
        assert argv[-5:] == ("--entrypoint", "sh", "lab:1", "-c", "cat /proc/self/limits")
        self.asked += 1
        return Done(0, LIMITS.format(self.stack), "")


@pytest.mark.parametrize(
    ("code", "stack", "cause"),
    [
        (139, "24576", "process-limits"),
        (139, "8388608", "probe-died"),
        (139, "unlimited", "probe-died"),
        (137, "24576", "probe-died"),
    ],
)
def test_a_crash_is_explained_by_a_small_stack_only_if_the_stack_is_small(code, stack, cause):
    seen, session = answers(), Session(stack)
    left = {host: facts for host, facts in seen.facts.items() if host != "b"}
    died = {"b": NoAnswer.of_probe(CommandEnded("`... docker run`", code, "no message"))}
    seen = dataclasses.replace(seen, facts=left, faults=died)
    verdict = judge(probe_ends.with_small_stacks(seen, ReachedHosts(Cluster(()), [session], {"b": FACTS}), "lab:1"))
    assert (verdict.cause, verdict.first.level, verdict.hosts) == (cause, "could not tell", ("b",))
    assert session.asked == (code == 139)
    if cause == "process-limits":
        assert "the stack limit of a process there is 24 KiB (ulimit -s)" in verdict.first.text
        assert "default-ulimits" in verdict.fix
        assert verdict.first.or_else == ("another crash of Python or of a library",)
