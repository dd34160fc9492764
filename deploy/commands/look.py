"""Commands that change nothing: status, gpus, logs, why, runs, board, report, compare, docs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..job.load import value_of
from ..job.option_words import command_of
from ..job.options import FLAG, Options
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console


@command(
    example=command_of("status", hosts="gpu-a,gpu-b"),
    codes={DONE: "every host answered", FAILED: "a host did not answer; the others are shown"},
)
def status(options: Options, console: Console) -> int:
    """Show what runs on each host: state, step, rate, GPUs, last line."""
    from ..hosts.look import status as hosts_status
    from ..local import attach as local_attach
    from ..slurm import runs as slurm_runs
    from . import where

    named, going = options, list[str]()
    if not options.run and (newest := where.run_on_this_machine(options)):
        named, going = replace(options, run=newest.name), where.going_on()
    match where.run_of(named, console):
        case Path() as run_dir:
            local_attach.list_all(console, [run_dir.name, *going])
            console.hint(f"to see what its ranks do, or how it ended: muster why --run {run_dir.name}")
            return DONE
        case Options() as asked:
            return hosts_status.status(asked if options.run else replace(asked, run=""), console)
        case known:
            return slurm_runs.status(known, console)


@command(
    example=command_of("gpus", hosts="gpu-a,gpu-b"),
    codes={
        DONE: "every host answered",
        FAILED: "a host or its GPU driver did not answer; the others are shown",
        STOPPED: "stopped by Ctrl-C before the hosts had answered",
    },
)
def gpus(options: Options, console: Console) -> int:
    """Show who holds which GPU on each host: memory, process, user, container.

    Without hosts, and after a run on this machine, it shows this machine.
    """
    from ..hosts.look import status as hosts_status
    from ..local import gpus as local_gpus
    from . import where

    if known := where.on_slurm(options):
        where.refuse_slurm(known)
    asked = where.run_on_this_machine(options) or where.with_recorded_hosts(options, console)
    if isinstance(asked, Options) and where.names_hosts(asked):
        return hosts_status.gpus(asked, console)
    return hosts_status.show_gpus({"this machine": local_gpus.list_gpus()}, console)


@command(
    example=command_of("logs", hosts="gpu-a,gpu-b", follow=True),
    codes={
        DONE: f"all lines are printed; with {FLAG.follow}, the run has ended, or you pressed Ctrl-C",
        FAILED: "a host did not answer, or the connection to it was lost",
        STOPPED: f"stopped by Ctrl-C before all lines were printed, without {FLAG.follow}",
    },
)
def logs(options: Options, console: Console) -> int:
    """Print what a run's nodes wrote, in time order, with host and rank.

    Without hosts, it prints what the ranks of a run on this machine wrote.
    """
    from ..hosts.look import logs as hosts_logs
    from ..local import within as local_within
    from ..slurm import runs as slurm_runs
    from . import where

    # If somebody followed a run to its end, its output is on this machine; for a run on Slurm, only the end of it is.
    known = where.run_on_this_machine(options) or where.on_slurm(options)
    match where.announced(known, options, console) if known else where.run_of(options, console, copy=True):
        case Path():
            return local_within.logs_here(options, console)
        case Options() as asked:
            return hosts_logs.logs(asked, console)
        case known:
            return slurm_runs.logs(known, options, console)


@command(
    example=(command_of("why", hosts="gpu-a,gpu-b"), "muster why"),
    codes={DONE: "every node answered", FAILED: "a host did not answer; the others are shown"},
)
def why(options: Options, console: Console) -> int:
    """Show what each rank of a script is doing now, and which ranks are missing.

    It does not disturb the run.
    """
    from ..hosts.look import why as hosts_why
    from ..local import attach as local_attach
    from . import where

    asked = where.run_not_on_slurm(options, console)
    if isinstance(asked, Options):
        return hosts_why.why_on_hosts(asked, console)
    if local_attach.is_over(asked):
        local_attach.known_end(asked, console)
    return hosts_why.why_here(options, console)


@command(
    example=("muster runs", command_of("runs", hosts="gpu-a,gpu-b")),
    codes={DONE: "listed", FAILED: "a host did not answer; the others are shown"},
)
def runs(options: Options, console: Console) -> int:
    """List the runs of this folder, or those on some hosts, newest last."""
    from ..hosts.look import status as hosts_status
    from ..local import attach as local_attach

    if options.hosts or options.cluster:
        return hosts_status.runs(options, console)
    local_attach.list_all(console)
    return DONE


@command(
    example=("muster board", "muster board ~/project", command_of("board", hosts="gpu-a,gpu-b")),
    codes={DONE: "you ended it with Ctrl-C", STOPPED: "stopped by Ctrl-C before the address was printed"},
    words={"folder": "a project, or its folder of runs (default: this folder)"},
)
def board(options: Options, console: Console, folder: str | None) -> int:
    """Show all runs in the browser, live, with curves to compare.

    It listens only on 127.0.0.1, at an address that nobody can guess,
    changes nothing, and ends with this command. With hosts, it lists
    their runs too, and follows those that are running.
    """
    from ..local import attach as local_attach
    from ..report.board import server
    from ..report.board.answers import Board
    from ..run.files import folders

    if options.hosts or options.cluster:
        from ..hosts.look import board as hosts_board

        if folder:
            raise UsageError(f"{folder}: with hosts, the board shows this folder's runs", "leave one of them out")
        return hosts_board.serve(options, local_attach.live_runs, console)
    runs = folders.runs_of(folder) if folder else folders.RUNS
    board = Board(runs, live=lambda: local_attach.live_runs(runs))
    return server.serve(board, value_of(options, "port") or 0, not options.no_open, console)


@command(
    example="muster report latest",
    codes={DONE: "the page is written; its path is on standard output"},
)
def report(options: Options, console: Console) -> int:
    """Build the report.html of a run again."""
    from ..report.page import run as page
    from ..run.files import folders, record

    folders.ask_link(folders.RUNS)
    path = page.write(record.find(options.run or "latest"))
    console.line(folders.display_path(path))
    return DONE


@command(
    example=("muster compare first latest", "muster compare first second third"),
    codes={DONE: "the comparison is printed"},
    words={"run...": "two to eight runs: latest, ids or paths (required)"},
)
def compare(options: Options, console: Console, run: tuple[str, ...]) -> int:
    """Compare two to eight runs: what differs, their curves, their numbers.

    `muster board` overlays the curves.
    """
    from ..report import compare as comparing
    from ..run.files import record

    comparing.require_number(run)
    comparison = comparing.compare([record.find(name) for name in run])
    console.line("\n".join(comparing.lines(comparison)), {"kind": "comparison", **asdict(comparison)})
    return DONE


@command(
    example=("muster docs", "muster docs resume", "muster docs it-hangs"),
    codes={},
    words={"page...": "the name of a page (default: list them)"},
)
def docs(options: Options, console: Console, page: tuple[str, ...]) -> int:
    """Print a page of the tutorial or the how-to guides, offline.

    Without a name, it lists the pages.
    """
    from ..report import pages

    if page:
        console.page(pages.read_page(page))
    else:
        console.block(pages.list_pages())
    return DONE
