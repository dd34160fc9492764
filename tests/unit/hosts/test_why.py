"""What `fab why` answers where no rank can say anything any more."""

import pytest

from deploy.core.errors import DeployError
from deploy.host.facts import Container
from deploy.hosts import why


def container(place, code):
    return Container("r1", f"h{place}", place, 2, "muster-r1", "exited" if code is not None else "running", code, 29500)


def test_a_run_whose_nodes_have_all_ended_is_refused_once_with_the_command_that_shows_its_end():
    with pytest.raises(DeployError, match=r"r1 has ended: h0 ended with code 1, h1 was killed by SIGKILL") as refusal:
        why._refuse_over("r1", {"h0": container(0, 1), "h1": container(1, 137)})
    assert "attach --hosts h0,h1 --run r1" in refusal.value.hint
    why._refuse_over("r1", {"h0": container(0, 1), "h1": container(1, None)})
