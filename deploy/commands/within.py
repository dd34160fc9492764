"""Commands that work next to the ranks of a run, on hosts or here: exec, shell, port, tensorboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..job.option_words import command_of
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
        DONE: "the command ended with 0 on every host; otherwise the code is the largest that it ended with",
        FAILED: "a host did not answer; the others are shown",
        STOPPED: "stopped by Ctrl-C: the command was ended on every host",
    },
)
def execute(options: Options, console: Console, words: list[str]) -> int:
    """Run a command in a run's container on every host.

    It runs as the run's user, in the script's working folder.
    For a run on this machine, it runs once, next to one rank.
    """
    from ..hosts.act import within
    from ..local import within as local_within
    from . import where

    if not words:
        hosts = "" if where.run_on_this_machine(options) else options.hosts or _HOSTS
        raise UsageError("the command is missing", command_of("exec", options, "nvidia-smi", hosts=hosts))
    asked = where.run_not_on_slurm(options, console)
    if isinstance(asked, Options):
        return within.exec_on_hosts(asked, words, console)
    return local_within.exec_here(options, words, console)


@command(
    takes_more=True,
    example=command_of("shell", hosts=_HOSTS, rank="3"),
    codes={DONE: "the shell has ended; its own exit code is passed on"},
)
def shell(options: Options, console: Console, words: list[str]) -> int:
    """Open a shell in a run's container. The run is not disturbed.

    It runs as the run's user, in the script's working folder.
    A command after the options runs instead of the shell.
    """
    from ..hosts.act import within
    from ..local import within as local_within
    from . import where

    asked = where.run_not_on_slurm(options, console)
    return within.shell(asked, words) if isinstance(asked, Options) else local_within.shell_here(options, words)


@command(
    example=(command_of("port 6006", hosts=_HOSTS), command_of("port 7000:6006", hosts=_HOSTS, rank="3")),
    codes={
        DONE: "you ended the command with Ctrl-C, or the run's container has ended",
        STOPPED: "stopped by Ctrl-C before the port was open",
    },
    words={"number": "the port in the container, or HERE:THERE to choose the port here (required)"},
)
def port(options: Options, console: Console, number: str) -> int:
    """Forward a port of this machine to a run's container.

    It listens only on 127.0.0.1, and ends with this command.
    """
    from ..hosts.look import port as hosts_port
    from ..run.files import record
    from . import where

    asked = where.run_not_on_slurm(options, console)
    if isinstance(asked, Options):
        return hosts_port.port(asked, number, console)
    _, remote = hosts_port.numbers(number)
    hint = f"open 127.0.0.1:{remote}"
    if record.facts(asked).get("backend") == "docker":
        hint = f"`muster exec --run {asked.name} -- hostname -i` prints its address: open {remote} there"
    raise UsageError(f"port: {asked.name} runs on this machine: its ports need no forwarding", hint)


@command(
    example=(command_of("tensorboard", hosts=_HOSTS), command_of("tensorboard", run="ID")),
    codes={
        DONE: "you ended the command with Ctrl-C, or the run's container has ended",
        FAILED: "there is no TensorBoard, or no such rank",
        STOPPED: "stopped by Ctrl-C before TensorBoard was open",
    },
)
def tensorboard(options: Options, console: Console) -> int:
    """Open TensorBoard on a run's event files.

    For a run on hosts, TensorBoard runs in the run's container, and its
    port is forwarded here; otherwise it runs here, on the run's folder.
    """
    from ..hosts.look import port as hosts_port
    from . import where

    # If somebody followed or fetched an ended run, what it wrote is on this machine.
    asked = where.run_not_on_slurm(options, console, copy=True)
    if isinstance(asked, Options):
        return hosts_port.tensorboard(asked, console)
    return hosts_port.tensorboard_here(str(asked), options.port)
