"""Findings about the hosts themselves: SSH, engines, architectures, images, networks, homes and mounts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from ...causes.docker_faults import DockerFault
from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.errors import DeployError
from ...core.text import binary, listed
from ...host.facts import HostFacts
from ...host.reached import NoAnswer
from ...job.option_words import command_of
from ...job.values import Mount
from .. import refusals
from ..answers import Answers
from ..remedies import on_hosts
from ..verdict import odd_ones
from . import resources

# A run has a few dozen files on each host, and its checkpoints.
_INODES_LEAST = 100
_FULL = "a folder with files"


def engine(host: str, fault: DeployError) -> Finding:
    """Return the finding for a host that could not be examined, because of SSH or its engine."""
    text, hint = fault.message.removeprefix(f"{host}: "), fault.hint
    if isinstance(fault, DockerFault):
        if not fault.words or fault.cause.name == "docker-missing":
            return refusals.of_fault(host, NoAnswer(fault.cause.name, text, fault.cause.row.hint(host)))
        if fault.at:
            return refusals.elsewhere(host, fault.cause.name, fault.words, fault.at)
        return refusals.of_words(host, "hosts", "`docker version`", fault.words, fault.cause.name)
    seen = NoAnswer.of(fault)  # an SSH fault, or the host's answer is malformed
    return refusals.of_fault(host, seen if seen.kind else seen._replace(hint=hint and f"on {host}: {hint}"))


def architectures(facts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Yield a finding if the hosts have different architectures: no single image runs on all of them."""
    machines = {host: entry.architecture for host, entry in facts.items()}
    if len(set(machines.values())) > 1:
        odd = tuple(host for host, name in machines.items() if name != next(iter(machines.values())))
        yield find(
            "architecture-differs",
            odd,
            f"the hosts have different architectures: {', '.join(f'{h} {m}' for h, m in machines.items())}",
            "use hosts with the same architecture: one image cannot run on both",
        )


def odd_images(layers: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the hosts whose image differs from the majority's. `layers`: by host, those of the image of that name."""
    images = {host: " ".join(held) for host, held in layers.items()}
    return odd_ones(images) if len(set(images.values())) > 1 else ()


def differing(
    image: str, layers: Mapping[str, Sequence[str]], hosts: Sequence[str], without: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a warning if hosts have different images under one name: a deploy sends one image to all.

    `without`: hosts in whose image `import torch` fails -> the error.
    """
    if odd := odd_images(layers):
        have = "has" if len(odd) == 1 else "have"
        text = f"{image} is not the same image on all hosts: {', '.join(odd)} {have} other layers"
        text += "".join(f"; `import torch` fails in the image on {host}: {words}" for host, words in without.items())
        text += "; `muster deploy` does not use that one, and sends another" if without else ""
        yield find(
            "image-differs",
            odd,
            text,
            f"`muster deploy` sends one image to all hosts, and so does {command_of('push', hosts=','.join(hosts))}",
            WARNING,
        )


def other_base(image: str, hosts: Sequence[str]) -> Finding:
    """Return a warning that preflight used the hosts' image, which differs from this machine's."""
    return find(
        "image-differs",
        tuple(hosts),
        f"{image}: all hosts have this image, but this machine has another one under the same name, which a "
        "deploy would send",
        level=WARNING,
        symptom="",
    )


def broken_image(host: str, words: str) -> Finding:
    """Return the finding for an engine that has the image but cannot inspect it: a push to it would fail."""
    return refusals.of_words(host, "software", "`docker image inspect`", words, "docker-refused")


def networks(every: Mapping[str, HostFacts], answers: Answers) -> Iterator[Finding]:
    """Yield findings for hosts whose engine, and so each container, is in another network namespace than the login."""
    for host, facts in every.items():
        inside = answers.facts.get(host, {}).get("namespace", "")
        if inside and facts.network and inside != facts.network:
            cards = [name for name, card in answers.facts[host]["interfaces"].items() if not card["loopback"]]
            if not facts.addresses:
                yield _jail(host, cards)
                continue
            text = f"its container engine has its own network: with --network host, a container sees {listed(cards)}"
            text += f", and not the host's {listed(sorted({entry.interface for entry in facts.addresses}))}"
            yield find(
                "bridge-network",
                host,
                text,
                f"on {host}: sudo systemctl restart docker; docker context ls (a rootless engine has its own network)",
            )


def _jail(host: str, cards: Sequence[str]) -> Finding:
    """Return the finding for a host whose logins have no network, but whose engine has one."""
    text = (
        "a login there is in a network namespace without any network: the login sees no network card, the "
        "container engine "
    )
    text += f"sees {listed(cards)}"
    return find(
        "ssh-shell",
        host,
        text,
        f"on {host}: look for ForceCommand in sshd's configuration, and for firejail or unshare in the login shell",
    )


def homes(every: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Yield findings for hosts where a run cannot write its files, or where commands that Muster needs are missing."""
    for host, facts in every.items():
        ours = quote(f"{facts.home}/.muster")
        if not facts.home_writable:
            place = facts.closed or facts.home
            why = f": {facts.closed_why}" if facts.closed_why else ""
            fix = f"on {host}: ls -ld {quote(place)}; mount | grep -w ro"
            if "read-only file system" in facts.closed_why.lower():
                fix = (
                    f"on {host}: findmnt -T {quote(place)}; sudo dmesg | tail   (the kernel makes a disk with "
                    "errors read-only)"
                )
            yield find("home-readonly", host, f"{place} is not writable, or is not a folder{why}", fix)
        if facts.claims_closed:
            fix = f"on {host}: sudo chown root /var/tmp; sudo chmod 1777 /var/tmp"
            if "read-only file system" in facts.claims_closed.lower():
                fix = (
                    f"on {host}: {_writable('/var/tmp')}   (sudo dmesg | tail: the kernel makes a disk with "
                    "errors read-only)"
                )
            yield find(
                "folder-readonly", host, f"a run cannot record there which GPUs it uses: {facts.claims_closed}", fix
            )
        if facts.claims_full:
            yield find(
                "disk-full",
                host,
                "/var/tmp is full: a run cannot record there which GPUs it uses",
                f"on {host}: df -h /var/tmp; sudo du -xh /var/tmp | sort -h | tail",
                symptom="`No space left on device`: the run does not start",
            )
        if facts.no_timer:
            yield find(
                "process-limits",
                host,
                f"a login there cannot wait for a lock: {facts.no_timer}",
                f"on {host}: ulimit -i must not be 0: look for ulimit in ~/.bashrc, and for sigpending in "
                "/etc/security",
            )
        if facts.home_writable and facts.inodes is not None and facts.inodes < _INODES_LEAST:
            yield find(
                "inodes-full",
                host,
                f"only {facts.inodes} more files fit into {ours}, because few inodes are left",
                f"on {host}: df -i {ours}; {command_of('clean', hosts=host)} shows what can be removed",
            )
        if facts.lacks:
            yield find(
                "command-missing", host, f"it has no {listed(facts.lacks)}, which Muster's scripts on hosts need"
            )
        if not facts.iproute:
            yield _no_ip(host, facts)
        if facts.home_writable and facts.room is not None and facts.room < resources.DISK_LEAST:
            yield find(
                "disk-full",
                host,
                f"only {binary(facts.room)} free in {ours}",
                f"on {host}: df -h {ours}; {command_of('clean', hosts=host)} shows what takes room",
                symptom="`No space left on device`",
            )


def _no_ip(host: str, facts: HostFacts) -> Finding:
    """Return the finding for a host whose `ip` lists no addresses; it may be a user's own program of that name."""
    which = f" ({facts.iproute_at})" if facts.iproute_at.startswith("/") else ""
    return find(
        "no-iproute2",
        host,
        f"its `ip` command{which} lists no addresses: {facts.iproute_words or 'it printed nothing'}",
        f"on {host}: {'sudo ' * bool(facts.uid)}apt-get install iproute2 (or: dnf install iproute); type -a ip: "
        "the one from iproute2 must come first",
    )


def _writable(source: str) -> str:
    """Return a command that makes a read-only file system writable; changing permissions would not help."""
    return f'sudo mount -o remount,rw "$(findmnt -no TARGET -T {source})"'


def mounts(answers: Answers, mounts: Mapping[str, Sequence[Mount]]) -> Iterator[Finding]:
    """Yield faults for mounted folders that the run's processes cannot read, and warnings if they cannot write."""
    for host, facts in answers.facts.items():
        tried, number = facts.get("mounts", {}), facts.get("user")
        for mount in mounts.get(host, ()):
            may, source = tried.get(mount.target, "rw"), quote(mount.source)
            if "r" not in may:
                opened = f"sudo chmod -R o+rX {source}"
                first = f"{_writable(source)} && " if "o" in may and not mount.read_only else ""
                closed = f", and if the disk is read-only, after {_writable(source)}" if mount.read_only else ""
                yield find(
                    "mount-closed",
                    host,
                    f"the run's uid there, {number}, cannot read {mount.source}",
                    f"on {host}: {first}{opened}   (the run must be able to enter its parent folders as well{closed})",
                )
            elif "w" not in may and not mount.read_only:
                text = f"the run's uid there, {number}, cannot write to {mount.source}"
                owned = f"sudo chown -R {number} {source}; if the run only reads it, mount it with :ro"
                fix = f"on {host}: {owned}"
                if "o" in may:
                    text = f"the file system of {mount.source} is mounted read-only"
                    fix = f"on {host}: {_writable(source)}; if the run only reads it, mount it with :ro"
                yield find("mount-closed", host, text, fix, WARNING)


def _odd_holders(kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that differ from the majority; without one, those without a folder with files; never all."""
    odd = odd_ones(kinds)
    if len(odd) == len(kinds):
        odd = tuple(host for host, kind in kinds.items() if kind != _FULL)
    return odd[1:] if len(odd) == len(kinds) else odd


def unlike_mounts(answers: Answers, mounts: Mapping[str, Sequence[Mount]]) -> Iterator[Finding]:
    """Yield findings for mounted paths that are a file on one host and a folder on another, or empty on some hosts."""
    seen = dict[str, dict[str, str]]()
    for host, facts in answers.facts.items():
        tried = facts.get("mounts", {})
        for mount in mounts.get(host, ()):
            may = tried.get(mount.target, "")
            if "r" in may and not mount.create:
                kind = {"f": "a file", "e": "an empty folder"}.get(may[-1], _FULL)
                seen.setdefault(mount.target, {})[host] = kind
    sources = {(host, mount.target): mount.source for host in mounts for mount in mounts[host]}
    for target, kinds in seen.items():
        if len(set(kinds.values())) < 2:
            continue
        odd = _odd_holders(kinds)
        other = next(host for host in kinds if host not in odd)
        theirs = listed(f"{host} has {kinds[host]}" for host in odd)
        grave = FAULT if "a file" in kinds.values() else WARNING
        shown = [f"{host}: {sources[host, target]}: {kind}" for host, kind in kinds.items()]
        look = {host: f"ls -ld {quote(sources[host, target])}" for host in odd}
        yield find(
            "mount-differs",
            tuple(odd),
            f"{target} is not the same on all hosts: {theirs}, {other} has {kinds[other]}",
            f"{on_hosts(odd, look.__getitem__)}   "
            f"(copy there what {other} has in {sources[other, target]}, or mount "
            "the folder that holds it)",
            grave,
            evidence=shown,
        )
