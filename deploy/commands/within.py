"""Commands beside the ranks of a run, on hosts or here: exec, shell, port, tensorboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..job.again import command_of
from ..job.options import Options
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console

_HOSTS = "gpu-a,gpu-b"


@command(
    name="exec",
    takes_more=True,
    example=(
        command_of("exec", hosts=_HOSTS, more="nvidia-smi"),
        command_of("exec", hosts="gpu-a", rank="0", more="ls -la outputs"),
    ),
    codes={
        DONE: "the command ended with 0 on every host; else its largest code",
        FAILED: "a host did not answer; the others are shown",
        STOPPED: "Ctrl-C: the command was ended on every host",
    },
)
def execute(options: Options, console: Console, words: list[str]) -> int:
    """Run a command in a run's container on every host.

    It runs as the run's user, in the folder where the script works.
    For a run on this machine: once, beside a rank.
    """
    from ..hosts import recorded
    from ..hosts.act import within
    from ..local import within as local_within

    here = recorded.here(options)
    if not words:
        hosts = "" if here else options.hosts or _HOSTS
        raise UsageError("no command is named", command_of("exec", options, "nvidia-smi", hosts=hosts))
    if here:
        return local_within.exec_here(options, words, console)
    return within.exec_on_hosts(recorded.filled(options, console), words, console)


@command(
    takes_more=True,
    example=command_of("shell", hosts=_HOSTS, rank="3"),
    codes={DONE: "the shell has ended, with this code or another one of its own"},
)
def shell(options: Options, console: Console, words: list[str]) -> int:
    """Open a shell in a run's container. The run is not disturbed.

    It runs as the run's user, in the folder where the script works.
    A command after the options is started instead of the shell.
    """
    from ..hosts import recorded
    from ..hosts.act import within
    from ..local import within as local_within

    if recorded.here(options):
        return local_within.shell_here(options, words)
    return within.shell(recorded.filled(options, console), words)


@command(
    example=(command_of("port 6006", hosts=_HOSTS), command_of("port 7000:6006", hosts=_HOSTS, rank="3")),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        STOPPED: "Ctrl-C before the port was open",
    },
    words={"number": "the port in the container, or HERE:THERE to choose the port here (required)"},
)
def port(options: Options, console: Console, number: str) -> int:
    """Forward a port of this machine to a run's container.

    It listens on 127.0.0.1 alone, and ends with this command.
    """
    from ..hosts import recorded
    from ..hosts.look import port as hosts_port
    from ..run.files import record

    if run_dir := recorded.here(options):
        _, remote = hosts_port.numbers(number)
        where = f"open 127.0.0.1:{remote}"
        if record.facts(run_dir).get("backend") == "docker":
            where = f"`muster exec --run {run_dir.name} -- hostname -i` says its address: open {remote} there"
        raise UsageError(f"port: {run_dir.name} runs on this machine: its ports need no forwarding", where)
    return hosts_port.port(recorded.filled(options, console), number, console)


@command(
    example=(command_of("tensorboard", hosts=_HOSTS), command_of("tensorboard", run="ID")),
    codes={
        DONE: "you ended the command by Ctrl-C, or the run's container has ended",
        FAILED: "there is no TensorBoard, or no such rank",
        STOPPED: "Ctrl-C before TensorBoard was open",
    },
)
def tensorboard(options: Options, console: Console) -> int:
    """Open TensorBoard on a run's event files.

    On hosts it runs in the run's container, and this machine gets its
    port; else it runs here, on the run's folder.
    """
    from ..hosts import recorded
    from ..hosts.look import port as hosts_port
    from ..run.files import record

    # If somebody followed or fetched an ended run, what it wrote is on this machine.
    if not recorded.here(options) and not recorded.ended_here(options):
        return hosts_port.tensorboard(recorded.filled(options, console), console)
    folder = record.find(options.run or "latest")
    return hosts_port.tensorboard_here(str(folder), options.port)
