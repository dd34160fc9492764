"""Ctrl-C, SIGTERM, a lost terminal and kill -9 of `muster deploy` in each of its phases: nothing stays on any host."""

import signal

import pytest

from deploy.core.errors import DETACHED
from tests.cluster import phases
from tests.cluster.phases import PHASES

# A kill -9 in these phases would find nothing on the hosts that other phases do not cover;
# test_deploy.py kills a control side that follows.
NOTHING_MORE = ("connecting", "looking at the hosts", "looking at their images", "following")
HIT = [(phase, signal.SIGINT) for phase in PHASES]
HIT += [(phase, signal.SIGKILL) for phase in PHASES if phase.name not in NOTHING_MORE]
# SIGTERM and SIGHUP have the same handler as SIGINT, so each is tried in one phase.
OTHERS = {"starting the first node": signal.SIGTERM, "starting the others": signal.SIGHUP}
HIT += [(phase, OTHERS[phase.name]) for phase in PHASES if phase.name in OTHERS]
LOOKING = ("connecting", "looking at the hosts", "looking at their images", "trying the links")
MESSAGES = dict.fromkeys(LOOKING, "nothing was changed")
PUSHING = ("sending", "loaded", "proving", "sending the folder", "folder arrived")


@pytest.fixture(scope="module")
def hosts(rack):
    """Two hosts with the base image, one with each image store: maps a host's name to its container."""
    names = (rack.hosts[0], rack.hosts[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_SSH_CONFIG", str(rack.ssh_config))
        made = {name: rack.container(name) for name in names}
        phases.push(made)
        yield made


@pytest.mark.parametrize(("phase", "number"), HIT, ids=lambda value: value.name)
def test_an_ended_deploy_leaves_nothing_on_the_hosts(hosts, phase, number, tmp_path):
    trial = phases.hit(tuple(hosts), hosts, phase, number, tmp_path)
    assert not trial.left
    if number == signal.SIGKILL:
        return
    if not phase.asked:
        assert trial.code == (DETACHED if phase.runs else 75), trial.output
    if number != signal.SIGHUP and not phase.runs:
        pushing = "nothing was started" if phase.name in PUSHING else "the nodes that had started were removed"
        assert MESSAGES.get(phase.name, pushing) in trial.output
