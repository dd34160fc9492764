"""Push a run's image onto hosts and show the progress: `muster push`, and the push within `muster deploy`.

send/image/push.py moves the bytes. This module has the messages, the lock, and the choice of the image.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ...core.errors import DONE, DeployError, UsageError
from ...core.text import amount, duration
from ...door.session import open_all
from ...engine import images as engine_images
from ...host import lock, run_user
from ...host.facts import HostFacts
from ...host.reached import ReachedHosts
from ...job import script_file
from ...job.cluster import Cluster
from ...job.load import folder_to_send, load_cluster
from ...job.options import Options
from ...report import folder_notes
from ...report.console import Console
from ...report.interrupts import Interrupts
from ...run.files.folders import cache_folder
from ...send.folder import folder_look
from ...send.folder.credentials import send_choice_of
from ...send.folder.folder_look import FolderLook
from ...send.image import official
from ...send.image import push as transfer
from ...send.image.base import is_anywhere
from ...send.image.model import slug, tag_of
from ...send.image.push import Pushed
from ...send.image.push_plan import PushPlan
from ...send.road.rates import Rates
from ...send.road.routes import HERE
from ..node import bare, packages, sent_folders
from ..node.shipment import Shipment
from . import observe, plan

LEFT_BY_A_PUSH = "nothing was started; the layers that arrived complete stay on the hosts for the next push"


def push(options: Options, console: Console) -> int:
    """Push the image and the folder to every host; start nothing. Raises DeployError with every host that failed."""
    with Interrupts(console, "connecting", "nothing was sent") as interrupts:
        cluster = load_cluster(options)
        refuse_mixed(cluster)
        folder, choice = folder_to_send(options, cluster), send_choice_of(cluster)
        code = FolderLook(folder, choice) if folder else None
        data = folder_look.looks_at_data(cluster.job.data, choice)
        with open_all(cluster.hosts) as opened:
            look_through(code, (), console)
            needs = packages.asked(cluster, code, console)
            sessions = list(opened.all().values())
            hosts = observe.reached(cluster, sessions, options.dry_run)
            bare.look(hosts, console)
            base = base_of(options, hosts, console)
            if needs:
                hosts, _ = run_user.choose_uid(hosts)
            about = (hosts.cluster, sessions, hosts.facts, base, tag_of(base, folder), folder, choice)
            shipment = Shipment(*about, needs, data)
            if options.dry_run:
                print_plan(shipment, code, console)
                packages.print_plan(shipment, {}, console)
                return DONE
            with lock.lock_hosts(sessions, "push"):
                interrupts.at("pushing the image", LEFT_BY_A_PUSH)
                foreseen = bare.bring(shipment, console, bare.begin(shipment))
                pushed = bring(shipment, code, console)
                if needs:
                    interrupts.at("installing the packages", packages.LEFT_BY_AN_INSTALL)
                packages.bring(shipment, pushed, console, foreseen)
                interrupts.hold()
        return DONE


def look_through(code: FolderLook | None, words: Sequence[str], console: Console, targets: Sequence[str] = ()) -> None:
    """Report which files of the folder are not sent, and what else the user should know about it.

    `words`: the script and its arguments. `targets`: as in folder_notes.py. Raises UsageError if the script is not
    sent, and as FolderLook.result does.
    """
    if code:
        script = script_file.file_of(words)
        folder_look.refuse_linked(code.folder, script, targets)
        folder_look.refuse_unsent(code.result(), code.folder, script)
        folder_notes.tell_sent(code, console, words, targets)


def bring(shipment: Shipment, code: FolderLook | None, console: Console) -> dict[str, Pushed]:
    """Push, show the progress, and report what each host was sent. `code`: as in send/image/push.py.

    Raises DeployError with every host that failed.
    """
    sessions, tag, data = shipment.sessions, shipment.tag, shipment.data
    folder_notes.tell_data(data, console)
    with console.transferring([session.name for session in sessions]) as tell:
        pushed = transfer.push(sessions, shipment.base, code, tag, tell, note=console.note, data=data).all()
    digest, has_data = sent_folders.digest_of(pushed), sent_folders.data_of(pushed)
    for host, what in pushed.items():
        size = amount(what.sent_bytes) if what.sent_bytes else "nothing"
        others = [f"{amount(count)} by {source}" for source, count in what.sources.items() if source != HERE]
        console.note(f"{host}: {size} sent{''.join(f', {by}' for by in others)} ({what.why})")
        row = {"kind": "pushed", "host": host, "image": tag, "bytes": what.sent_bytes, "why": what.why}
        row |= {"sources": dict(what.sources)}
        console.data({**row, **({"folder": digest} if digest else {}), **({"data": has_data} if has_data else {})})
    return pushed


def plan_push(shipment: Shipment, code: FolderLook | None, console: Console) -> dict[str, PushPlan]:
    """What a push would send to each host."""
    folder_notes.tell_data(shipment.data, console)
    return transfer.foresee(shipment.sessions, shipment.base, code, shipment.tag, shipment.data).all()


def print_road_plan(pushes: Mapping[str, PushPlan], console: Console) -> None:
    """Report which hosts would get layers and data from each other."""
    lacking, rates = dict[tuple[str, ...], dict[str, int]](), Rates(cache_folder())
    for host, push_plan in pushes.items():
        if push_plan.layers:
            lacking.setdefault(("layers", *push_plan.layers), {})[host] = push_plan.bytes
        for folder in push_plan.folders:
            if folder.is_data and folder.lacking:
                lacking.setdefault((folder.target, folder.lacking), {})[host] = folder.bytes
    for (what, *_), by_host in lacking.items():
        if len(by_host) > 1:
            hosts, size = [*by_host], max(by_host.values())
            way, seconds = " -> ".join((HERE, *hosts)), rates.seconds(hosts, size)
            lasts = f", {duration(seconds)} at the rate of the last push" if seconds is not None else ""
            console.line(f"{way}, in the order in which they answer: at most {amount(size)} of {what}{lasts}", {
                "kind": "would pass on", "hosts": hosts, "bytes": size, "seconds": seconds,
            })  # fmt: skip


def print_plan(shipment: Shipment, code: FolderLook | None, console: Console) -> None:
    """Report what a push would send, and why. Changes nothing."""
    tag = shipment.tag
    pushes = plan_push(shipment, code, console)
    for host, push_plan in pushes.items():
        what = "nothing to send" if push_plan.present else f"{len(push_plan.layers)} layers to send"
        console.line(f"{host}: {shipment.image}: {what} ({push_plan.why})", {
            "kind": "would push", "host": host, "image": tag, "layers": list(push_plan.layers), "why": push_plan.why,
        })  # fmt: skip
        for folder in push_plan.folders:
            size = f", {amount(folder.bytes)}" if folder.lacking and folder.is_data else ""
            console.line(f"{host}: {folder.place}: {folder.lacking or 'nothing'}{size} to send", {
                "kind": "would send", "host": host, "folder": folder.digest, "lacking": folder.lacking,
                "bytes": folder.bytes, "target": folder.target,
            })  # fmt: skip
    print_road_plan(pushes, console)


def base_of(options: Options, hosts: ReachedHosts, console: Console, trainer: bool = False) -> str:
    """Return the user's image, or the one built from the user's Dockerfile, or Muster's own, or PyTorch's.

    PyTorch's is for a script, if Muster's own is neither here nor on the hosts. `trainer`: there is no script.

    A Dockerfile's image is built for the hosts' architecture. A dry run builds nothing and prints the build command; it
    raises DeployError if the image was never built. DeployError is also raised for hosts with different architectures.
    """
    facts, dockerfile, platform = hosts.facts, hosts.job.dockerfile, plan.platform(hosts.facts)
    if bare.are_all_bare(facts):
        return bare.base_of(facts, hosts.cluster.job)
    if not dockerfile:
        own = plan.choose_image(list(facts.values()))
        if hosts.job.image or trainer or is_anywhere(hosts.sessions, own):
            return hosts.job.image or own
        return _official(own, facts, console)
    if credentials := folder_look.exposed_credentials(dockerfile, send_choice_of(hosts.cluster)):
        names = ", ".join(credential.path for credential in credentials)
        console.warn(
            f"{dockerfile}: COPY may put credentials into the image on all hosts: .dockerignore does not list {names}"
        )
    tag = f"muster-{slug(dockerfile.resolve().parent.name)}-base:latest"
    command = engine_images.build_command(dockerfile, tag, platform)
    if not options.dry_run:
        console.note(f"building {tag} from {dockerfile}{f' for {platform}' if platform in command else ''}")
        engine_images.build(command, dockerfile)
    else:
        console.note(f"would first build: {shlex.join(command)}")
        if engine_images.inspect(tag) is None:
            raise DeployError(
                f"{dockerfile} was never built, so Muster cannot know what a push would send", "build it first"
            )
    return tag


def _official(own: str, facts: Mapping[str, HostFacts], console: Console) -> str:
    """Choose PyTorch's image for these hosts, and report it."""
    machines = {
        host: official.Machine(fact.architecture, fact.driver, fact.capabilities) for host, fact in facts.items()
    }
    image, why = official.choose(machines)
    console.note(f"image: pytorch/pytorch:{image.tag}, {why} (--image chooses another; no machine has {own})")
    console.data({"kind": "image", "image": image.reference, "tag": image.tag, "why": why})
    return image.reference


def refuse_mixed(cluster: Cluster) -> None:
    """Raise UsageError if a host has its own image: Muster proves that all nodes run the same image."""
    images = sorted({host.image for host in cluster.hosts if host.image})
    if images:
        raise UsageError(
            f"[[hosts]].image is not supported ({', '.join(images)}): every node runs the same image",
            "set one image for all hosts: [job] image",
        )
