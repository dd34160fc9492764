"""Commands beside the ranks of a run on real hosts: exec, shell, port, tensorboard."""

from __future__ import annotations

import sys

from fabric import Connection

from ..core.errors import DONE, FAILED, STOPPED
from ..core.program import FAB
from ..hosts import port as deploy_port
from ..hosts import recorded, within
from ..job.load import load_cluster
from ..job.options import Options
from ..local import within as local_within
from ..report.console import Console
from ..run import folders, record
from .command import ALLOW, JSON, RECORDED, command
from .exit import end, names_hosts

_RANK = "beside this rank"


@command(
    name="exec",
    example=(f"{FAB} exec --hosts gpu-a,gpu-b -- nvidia-smi", f"{FAB} exec --hosts gpu-a --rank 0 -- ls -la outputs"),
    codes={
        DONE: "the command ended with 0 on every host; else its largest code",
        FAILED: "a host did not answer; the others are shown",
        STOPPED: "Ctrl-C: the command was ended on every host",
    },
    help={**RECORDED, **JSON, "rank": f"{_RANK} alone (default: on every host of the run)"},
)
def exec_task(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", rank: str = "", json: bool = False
) -> None:
    """Run the command after -- in a run's container on every host.

    It runs as the run's user, in the folder where the script works.
    For a run on this machine: once, beside a rank.
    """
    console = Console(json)

    def work() -> int:
        options = recorded.or_here(Options(hosts, cluster, run), console)
        if names_hosts(options.hosts, options.cluster):
            return within.exec_on_hosts(load_cluster(options), options.run, rank, _words(), console)
        return local_within.exec_here(run, rank, _words(), console)

    end(context, console, work)


@command(
    example=f"{FAB} shell --hosts gpu-a,gpu-b --rank 3",
    codes={DONE: "the shell has ended, with this code or another one of its own"},
    help={**RECORDED, "rank": f"{_RANK} (default: 0)"},
)
def shell(context: Connection, hosts: str = "", cluster: str = "", run: str = "", rank: str = "") -> None:
    """Open a shell in a run's container. The run is not disturbed.

    It runs as the run's user, in the folder where the script works.
    A command after -- is started instead of the shell.
    """

    console = Console(False)

    def work() -> int:
        options = recorded.or_here(Options(hosts, cluster, run), console)
        if names_hosts(options.hosts, options.cluster):
            return within.shell(load_cluster(options), options.run, rank, _words())
        return local_within.shell_here(run, rank, _words())

    end(context, console, work)


@command(
    example=(f"{FAB} port 6006 --hosts gpu-a,gpu-b", f"{FAB} port 7000:6006 --hosts gpu-a,gpu-b --rank 3"),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        STOPPED: "Ctrl-C before the port was open",
    },
    positional=["number"],
    help={
        **RECORDED,
        **JSON,
        "number": "the port in the container, or HERE:THERE if it should be another one here (required)",
        "rank": f"{_RANK} (default: 0)",
    },
)
def port(
    context: Connection,
    number: str,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    rank: str = "",
    json: bool = False,
) -> None:
    """Make a port of a run's container a port of this machine.

    It listens on 127.0.0.1 alone, and ends with this command.
    """
    console = Console(json)

    def work() -> int:
        options = recorded.filled(Options(hosts, cluster, run), console)
        return deploy_port.port(load_cluster(options), options.run, rank, number, console)

    end(context, console, work)


@command(
    example=(f"{FAB} tensorboard --hosts gpu-a,gpu-b", f"{FAB} tensorboard --run ID"),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        FAILED: "there are no event files, or no TensorBoard",
        STOPPED: "Ctrl-C before TensorBoard was open",
    },
    help={
        "hosts": "where the run is: user@a:port,b (default: what the run's record here says; once it has ended, here)",
        "cluster": "where the run is: a file like cluster.toml (default: as for --hosts)",
        **ALLOW,
        "run": "the run's id, or latest (default: on named hosts the only run that is going on, else the latest)",
        "rank": f"{_RANK}: its host's event files (default: 0)",
        "port": "the port here (default: 6006)",
        **JSON,
    },
)
def tensorboard(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    rank: str = "",
    port: str = "",
    json: bool = False,
) -> None:
    """Open TensorBoard on a run's event files.

    On hosts it runs in the run's container, and this machine gets its
    port; else it runs here, on the run's folder.
    """
    console = Console(json)

    def work() -> int:
        asked = Options(hosts, cluster, run)
        # If somebody followed or fetched an ended run, what it wrote is on this machine.
        options = asked if recorded.ended_here(asked) else recorded.or_here(asked, console)
        if options.hosts or options.cluster:
            return deploy_port.tensorboard(load_cluster(options), options.run, rank, port, console)
        folder = record.find(folders.RUNS, run or "latest")
        return deploy_port.tensorboard_here(str(folder), port)

    end(context, console, work)


def _words() -> list[str]:
    """The words after `--`, as they were typed."""
    typed = sys.argv[1:]
    return typed[typed.index("--") + 1 :] if "--" in typed else []
