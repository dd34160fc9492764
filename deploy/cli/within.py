"""Commands beside the ranks of a run on real hosts: exec, shell, port, tensorboard."""

from __future__ import annotations

from ..core.errors import DONE, FAILED, STOPPED
from ..core.program import FAB
from ..hosts import port as deploy_port
from ..hosts import recorded, within
from ..job.load import load_cluster
from ..job.options import Options
from ..local import within as local_within
from ..report.console import Console
from ..run import folders, record
from .command import command


@command(
    name="exec",
    takes_more=True,
    example=(f"{FAB} exec --hosts gpu-a,gpu-b -- nvidia-smi", f"{FAB} exec --hosts gpu-a --rank 0 -- ls -la outputs"),
    codes={
        DONE: "the command ended with 0 on every host; else its largest code",
        FAILED: "a host did not answer; the others are shown",
        STOPPED: "Ctrl-C: the command was ended on every host",
    },
)
def exec_task(options: Options, console: Console, words: list[str]) -> int:
    """Run the command after -- in a run's container on every host.

    It runs as the run's user, in the folder where the script works.
    For a run on this machine: once, beside a rank.
    """
    asked = recorded.or_here(options, console)
    if recorded.names_hosts(asked):
        return within.exec_on_hosts(load_cluster(asked), asked.run, options.rank, words, console)
    return local_within.exec_here(options.run, options.rank, words, console)


@command(
    example=f"{FAB} shell --hosts gpu-a,gpu-b --rank 3",
    takes_more=True,
    codes={DONE: "the shell has ended, with this code or another one of its own"},
)
def shell(options: Options, console: Console, words: list[str]) -> int:
    """Open a shell in a run's container. The run is not disturbed.

    It runs as the run's user, in the folder where the script works.
    A command after -- is started instead of the shell.
    """
    asked = recorded.or_here(options, console)
    if recorded.names_hosts(asked):
        return within.shell(load_cluster(asked), asked.run, options.rank, words)
    return local_within.shell_here(options.run, options.rank, words)


@command(
    example=(f"{FAB} port 6006 --hosts gpu-a,gpu-b", f"{FAB} port 7000:6006 --hosts gpu-a,gpu-b --rank 3"),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        STOPPED: "Ctrl-C before the port was open",
    },
    words={"number": "the port in the container, or HERE:THERE if it should be another one here (required)"},
)
def port(options: Options, console: Console, number: str) -> int:
    """Make a port of a run's container a port of this machine.

    It listens on 127.0.0.1 alone, and ends with this command.
    """
    asked = recorded.filled(options, console)
    return deploy_port.port(load_cluster(asked), asked.run, options.rank, number, console)


@command(
    example=(f"{FAB} tensorboard --hosts gpu-a,gpu-b", f"{FAB} tensorboard --run ID"),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        FAILED: "there are no event files, or no TensorBoard",
        STOPPED: "Ctrl-C before TensorBoard was open",
    },
)
def tensorboard(options: Options, console: Console) -> int:
    """Open TensorBoard on a run's event files.

    On hosts it runs in the run's container, and this machine gets its
    port; else it runs here, on the run's folder.
    """
    # If somebody followed or fetched an ended run, what it wrote is on this machine.
    asked = options if recorded.ended_here(options) else recorded.or_here(options, console)
    if asked.hosts or asked.cluster:
        return deploy_port.tensorboard(load_cluster(asked), asked.run, options.rank, options.port, console)
    folder = record.find(folders.RUNS, options.run or "latest")
    return deploy_port.tensorboard_here(str(folder), options.port)
