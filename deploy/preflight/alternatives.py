"""What else has the same outcome as a cause that is inferred: from how calls fail, or from a tool's last words. Pure.

A fact that is read whole (a process has the port, a clock is off) has one meaning. An outcome has several: packets
that vanish, `permission denied`. So a finding that is inferred states first what was seen, in words that stay true,
then what it looks like; and it is sure only if a second piece of evidence singles it out.
"""

from __future__ import annotations

from dataclasses import replace

from .findings import FAULT, UNKNOWN, Finding

LOOKS = "; this looks like: "
_FILTER = ("a firewall of either host or between them", "a security group")
_WAY = ("a way back that rp_filter drops", "a limit of new connections")
_LARGE = ("a rule that drops by length or by bytes", "offloads of a card (tso, gro)", "a middlebox that changes TCP")
_RIGHTS = ("a seccomp profile", "AppArmor or SELinux", "a flag or a quota of the file system")
_ANSWERER = ("another program at that address", "a middlebox that lets only the handshake pass")
_LOGIN = (
    "AllowUsers, DenyUsers or a Match block of its sshd_config",
    "an account that has expired or is locked",
    "a home or ~/.ssh that others may write to (StrictModes)",
    "logins that are closed (/etc/nologin)",
)
_SHELL = ("a ForceCommand", "a start-up file that ends the shell", "an expired password, or another rule of PAM")
_CLIENT = ("DOCKER_HOST or a docker context that leads elsewhere", "a setting in ~/.docker", "a proxy")
# By cause. What is not here is read whole, or says nothing but what was seen.
OTHERS: dict[str, tuple[str, ...]] = {
    "all-ports-dropped": (*_FILTER, *_WAY),
    "rendezvous-dropped": (*_FILTER, *_WAY),
    "data-ports-dropped": (*_FILTER, *_WAY),
    "all-ports-rejected": (
        *_FILTER,
        "a rule that sends the ports elsewhere (DNAT)",
        "a rule of routing (prohibit)",
        "a seccomp profile",
    ),
    "rendezvous-rejected": (*_FILTER, "a rule that sends the port elsewhere (DNAT)"),
    "data-ports-rejected": (*_FILTER, "a rule that sends the ports elsewhere (DNAT)"),
    "host-unreachable": (*_FILTER, "a wrong route or netmask", "the switch, or another VLAN"),
    "no-route": ("a rule of routing (ip rule)", "a firewall of its own that rejects what it sends"),
    "arp-unanswered": ("another VLAN", "a filter of ARP (arp_ignore, arptables)", "another owner of the address"),
    "arp-wrong": ("proxy ARP", "another owner of the address"),
    "wrong-machine": _ANSWERER,
    "mtu-blackhole": ("a tunnel or a switch with a smaller MTU", *_LARGE),
    "connection-cut": ("a limit of bytes or of time", "an inspecting firewall", *_LARGE),
    "link-loss": ("a limit of packets or of new connections", "one dead way of several", "a bad cable"),
    "link-slow": (
        "a limit of rate",
        "small windows of TCP (tcp_rmem, tcp_wmem)",
        "a busy host",
        "packets that are lost",
    ),
    "link-delay": ("a long way", "a queue that is full", "a busy host"),
    "local-ports-used": ("a source address that the host does not have",),
    "port-busy": ("a security module",),
    "port-forbidden": ("a seccomp profile", "AppArmor or SELinux"),
    # From the words of a tool.
    "disk-full": ("a quota of the disk", "no inodes left", "a limit of keys, of watches or of shared memory"),
    "home-readonly": _RIGHTS,
    "folder-readonly": _RIGHTS,
    "shm-small": ("a full disk behind a mapped file", "a memory error of the machine"),
    "memory-low": ("a limit of address space (ulimit -v)", "a limit of a control group", "a process that kills others"),
    "process-limits": (
        "a seccomp profile that forbids new threads",
        "too little memory for a stack",
        "an odd limit of the stack",
    ),
    "open-files": ("a limit of the whole machine (fs.file-max)", "a limit of inotify"),
    "architecture-differs": ("a file of the image or a runtime that is empty or damaged",),
    "image-missing": ("a damaged store of images",),
    "mount-missing": ("a folder on the way that is closed", *_RIGHTS),
    "no-python": ("a library that python3 needs and does not find", "a PATH without python3"),
    "gpu-driver": ("a requirement of the image that the driver does not meet", "rights of the devices"),
    "rdma-hidden": ("rights of the devices",),
    "docker-down": _CLIENT,
    "docker-silent": ("an engine that waits for its disk", *_CLIENT),
    "ssh-key": _LOGIN,
    "ssh-shell": ("no shell (nologin)", *_SHELL),
    "ssh-sessions": ("MaxSessions", "PAM (maxlogins, or a session that it cannot open)"),
    "ssh-lost": (
        "a restart of the host or of its SSH server",
        "large packets that get lost",
        "a limit of the login's processes or memory (PAM)",
        "an idle limit",
    ),
}


def unsure(finding: Finding, observed: str = "") -> Finding:
    """A sure finding as what it most likely is. `observed`: what was seen, in words that are true of every cause."""
    text = f"{observed}{LOOKS}{finding.text}" if observed else finding.text
    level = UNKNOWN if finding.level == FAULT else finding.level
    return replace(finding, text=text, level=level, or_else=OTHERS.get(finding.cause, ()))
