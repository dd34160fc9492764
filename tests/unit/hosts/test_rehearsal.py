"""The rehearsal is the run: its `docker run` differs from the node's only where it must."""

from types import SimpleNamespace

from deploy.hosts.node.container import Meeting, Work, node_containers
from deploy.hosts.start import rehearsal
from deploy.job.cluster import from_flag
from deploy.job.options import Job
from deploy.job.values import Mount
from tests.hosts import FACTS

HOST = from_flag("a").hosts[0]
MOUNTS = (Mount("/data", "/data", False), Mount("/ro", "/ro", True))
JOB = Job(mounts=MOUNTS, keep=("/out",), memory="9g", shm_size="3g")


def node():
    meeting = Meeting("10.0.0.1", 29500, ("eth7",))
    return node_containers([HOST], [FACTS], JOB, Work("r1", "app:latest", script=("train.py",)), meeting)[0]


def test_the_rehearsal_has_the_options_of_the_node_and_a_folder_of_its_own():
    made, folder = node(), rehearsal.folder_of(node(), "7f")
    argv = rehearsal.argv_of(made, folder)
    theirs = [word.replace(f"{made.folder}/keep", f"{folder}/keep") for word in made.docker.options]
    theirs[1] = f"{folder}:/muster/run"
    assert " ".join(theirs) in " ".join(argv)
    assert made.folder not in " ".join(argv)
    assert not {"--detach", "--name", "--restart"} & set(argv)
    assert not any(word.startswith("muster.run=") for word in argv), "`muster status` would show it as a run"


def test_the_rehearsals_folder_is_next_to_the_runs_but_is_not_a_run():
    folder = rehearsal.folder_of(node(), "7f")
    assert folder.rpartition("/")[0] == node().folder.rpartition("/")[0]
    assert folder.rpartition("/")[2].startswith(".")


def test_the_rehearsal_writes_only_where_the_run_may_write():
    assert rehearsal.writable(SimpleNamespace(host=HOST), node(), JOB) == ["/out", "/data"]


def test_a_run_with_another_launcher_sets_no_interface():
    plain = rehearsal.without_interfaces(node(), JOB).environment
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & plain.keys()
    assert node().environment["GLOO_SOCKET_IFNAME"] == "eth7"
