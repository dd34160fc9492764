"""The facts of an ordinary host, for tests to change as needed."""

from deploy.host.facts import HostFacts

FACTS = HostFacts(
    home="/home/u",
    uid=1001,
    gid=1001,
    architecture="x86_64",
    cores=8,
    memory=16 << 30,
    docker="26.1.5",
    free=None,
    open_files=None,
    rdma=False,
    gpus=(),
    addresses=(),
    reached_at="10.0.0.1",
    listening=frozenset(),
    containers=(),
    runs=frozenset(),
    clock_ahead_s=0.0,
    user="u",
)
