"""A fifth list, of what hardened, inherited and second-hand machines have: faults first, then oddities.

It has a seed of its own. Written before anybody tried preflight on a row, by somebody who has not read its rules; what
the other four lists have is left out. About half of the rows are two things at once, or a degree that is just enough
or just too little to stop a run. What the run then does decides what is a fault.
"""

from __future__ import annotations

from typing import Any

from lab.unseen.campus import firewall
from lab.unseen.homelab import away, pam
from lab.unseen.rented import kernel
from lab.unseen.row import (
    AGAIN,
    ANEW,
    ANSWERS,
    ENGINE,
    HOME,
    HUNG_UP,
    MADE,
    REJECTED,
    ROWS,
    RUNS,
    SAME,
    SILENT,
    SSHD,
    engine,
    row,
    shell,
)

SEED = 20261127
_BEGIN = len(ROWS)
# The engine's client under another name, with a script in its place.
_WRAPPED = ("mv /usr/bin/docker /usr/bin/docker.real; printf '#!/bin/sh\\n%s\\n' 'SCRIPT' >/usr/bin/docker; chmod 755 "
            "/usr/bin/docker")  # fmt: skip
_UNWRAPPED = "mv /usr/bin/docker.real /usr/bin/docker"
# The card's address with its length, and the gateway's, kept in a file: `read -r at via` gives them.
_KEEP = ("echo $(ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//') $(ip route show default | sed 's/.*via //; "
         "s/ .*//') >/run/inherited.card; read -r at via </run/inherited.card")  # fmt: skip
_GIVE = ("read -r at via </run/inherited.card; ip address flush dev eth0; ip address add $at brd + dev eth0; ip route "
         "replace default via $via dev eth0")  # fmt: skip


def wrapper(name: str, script: str, *causes: str, before: str = "true", after: str = "true", **more: Any) -> None:
    """A row of a script that stands before docker and calls docker.real."""
    row(name, f"{before}; {_WRAPPED.replace('SCRIPT', script)}", f"{_UNWRAPPED}; {after}", *causes, **more)


def sessions(name: str, kind: str, sets: dict[str, int], *causes: str, **more: Any) -> None:
    """A row of a cgroup for sshd, and so for all that logs in: what is written to its files; -1 undoes the last."""
    top = f"/sys/fs/cgroup/{kind}"
    group, file = f"{top}/inherited", list(sets)[-1]
    writes = "; ".join(f"echo {value} >{group}/{each}" for each, value in sets.items())
    row(name, f"set -e; mkdir -p {group}; {writes}; echo $(pgrep -o -x sshd) >{group}/cgroup.procs",
        f"echo -1 >{group}/{file}; for at in $(cat {group}/cgroup.procs); do echo $at >{top}/cgroup.procs; done; "
        f"sleep 1; rmdir {group}", *causes, **more)  # fmt: skip


def watchdog(name: str, seconds: int, settings: str, *causes: str, **more: Any) -> None:
    """A row of an engine that is started anew again and again."""
    again = f"while sleep {seconds}; do {ENGINE.replace('{}', settings)}{ANSWERS}; done"
    row(name, f"{ENGINE.replace('{}', settings)}{ANSWERS}; (cat <<'END'\n{again}\nEND\n) >/opt/watchdog; setsid sh "
        "/opt/watchdog </dev/null >/dev/null 2>&1 & sleep 0.2; pgrep -o -f '^sh /opt/watchdog' >/run/inherited.pid",
        f"kill -KILL $(cat /run/inherited.pid); rm /opt/watchdog; {ANEW}", *causes, **more)  # fmt: skip


# Faults: the engine and what lies under it.
row("iptables went with a firewall's package, and the engine was started anew since",
    f"mv /usr/sbin/iptables /usr/sbin/iptables.kept; {ANEW}",
    f"mv /usr/sbin/iptables.kept /usr/sbin/iptables; {ANEW}", "docker-down", says="iptables")  # fmt: skip
row("a power cut left docker.pid, and another process has that number now", "pkill -KILL -x dockerd; while pgrep -x "
    "dockerd >/dev/null; do sleep 0.1; done; pgrep -o -x sshd >/run/docker.pid; " + ANEW,
    f"rm -f /run/docker.pid; {ANEW}", "docker-down", says=r"docker\.pid|still running|\bPID\b")  # fmt: skip
_KV = "/var/lib/docker/network/files/local-kv.db"
row("a power cut tore the file of the engine's networks", "pkill -x dockerd; while pgrep -x dockerd >/dev/null; do "
    f"sleep 0.1; done; mv {_KV} /run/inherited.kv; head -c 32768 /dev/urandom >{_KV}; {ANEW}",
    f"pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done; mv /run/inherited.kv {_KV}; {ANEW}",
    "docker-down", says=r"local-kv|database|network controller|boltdb")  # fmt: skip
engine("a process in a container may use one second of a core", {"default-ulimits": {
    "cpu": {"Name": "cpu", "Hard": 1, "Soft": 1}}}, "process-limits", "proof-failed",
       says=r"XCPU|CPU (time|limit)|\b(137|152|-9|-24)\b|killed")  # fmt: skip
row("the provider's container took a capability that Docker gives to each container",
    ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid capsh --drop=cap_audit_write -- -c 'exec dockerd'")
    + ANSWERS, ANEW, "docker-refused", says=r"capabilit|\bcaps?\b|CAP_AUDIT|not permitted")  # fmt: skip
watchdog("a watchdog finds the engine ill each second and starts it anew", 1, SAME, "docker-down", "docker-refused",
         "docker-silent", says=r"restart|started (again|anew)|cannot connect|daemon running|again and again|uptime",
         )  # fmt: skip
_TASKS = "/sys/fs/cgroup/pids/inherited"
row("the engine's own service may have four tasks more than it has", f"set -e; mkdir -p {_TASKS}; for at in $(pgrep "
    f"-x dockerd) $(pgrep -x containerd); do echo $at >{_TASKS}/cgroup.procs; done; echo $(($(cat "
    f"{_TASKS}/pids.current) + 4)) >{_TASKS}/pids.max", f"echo max >{_TASKS}/pids.max; for at in $(cat "
    f"{_TASKS}/cgroup.procs); do echo $at >/sys/fs/cgroup/pids/cgroup.procs; done; rmdir {_TASKS}; {ANEW}",
    "process-limits", "docker-refused", "docker-down", "docker-silent",
    says=r"thread|fork|temporarily|pids|tasks")  # fmt: skip
wrapper("docker is a script that first writes an audit line, and the file is root's",
        'echo "$(date) $*" >>/var/log/docker-audit.log || { echo "audit: this call cannot be recorded" >&2; exit 77; '
        '}\nexec docker.real "$@"', "docker-refused", "docker-missing", "docker-permission", "file-permission",
        before="install -m 600 /dev/null /var/log/docker-audit.log", after="rm /var/log/docker-audit.log",
        says=r"audit|\b77\b")  # fmt: skip
row("the engine's socket was moved, and DOCKER_HOST tells so to shells of a login only", "mkdir -p /run/inherited; "
    "echo 'export DOCKER_HOST=unix:///run/inherited/docker.sock' >/etc/profile.d/docker.sh; "
    + ENGINE.replace("{}", SAME.replace("{", '{"hosts": ["unix:///run/inherited/docker.sock"], ', 1))
    + f"export DOCKER_HOST=unix:///run/inherited/docker.sock; {ANSWERS}", f"rm /etc/profile.d/docker.sh; {ANEW}",
    "docker-down", says=r"cannot connect|daemon running|docker\.sock|profile\.d|DOCKER_HOST")  # fmt: skip

# Faults: who may log in, and what a login may do.
pam("PAM lets users in at other hours, and the clock is in another time zone than they think",
    "account required pam_time.so", "ssh-key", "ssh-shell", *HUNG_UP, before="cp /etc/security/time.conf "
    "/run/inherited.time; echo \"sshd;*;muster;!Al$(date -d '1 hour ago' +%H)00-$(date -d '3 hours' +%H)00\" "
    ">>/etc/security/time.conf", after="cat /run/inherited.time >/etc/security/time.conf",
    says=r"\bPAM\b|closed|hung up|hours|time of day")  # fmt: skip
row("the kernel has numbers for forty processes and threads", "echo 340 >/proc/sys/kernel/pid_max",
    "echo 4194304 >/proc/sys/kernel/pid_max", "process-limits",
    says=r"thread|process|fork|temporarily|pid_max")  # fmt: skip
sessions("all logins together may take 8 MB", "memory", {"memory.limit_in_bytes": 8000000}, "memory-low", *HUNG_UP,
         says=r"(?<!shared )memory|killed|137|signal 9")  # fmt: skip
sessions("all logins together may take 0.2% of a core", "cpu", {"cpu.cfs_period_us": 1000000,
    "cpu.cfs_quota_us": 2000}, "ssh-slow", "ssh-timeout", "ssh-silent", "ssh-lost", "docker-silent",
         says=r"quota|throttl|\bCPU\b|of a core|slow|not (end|answer|finish)|timed out")  # fmt: skip
row("the homes are read-only, and only the folder of the runs is a disk that is not", f"{MADE}; mount --bind /home "
    "/home; mount -o remount,bind,ro /home; mount -t tmpfs -o uid=1000,gid=1000,mode=700 none " + RUNS,
    f"umount -l {RUNS}; umount -l /home", "home-readonly", "folder-readonly",
    says="read-only|may not write|not writable")  # fmt: skip
row("the group docker got another number while the engine ran", "groupmod -g 2999 docker",
    "groupmod -g $(stat -c %g /run/docker.sock) docker", "docker-permission",
    says=r"\bgroups?\b|permission denied")  # fmt: skip
away("there is no base64", "/usr/bin/base64", "command-missing", says=r"\bbase64\b")
row("a colleague was here first, with a umask of 077: what Muster keeps for all users is hers", "mv "
    "/var/tmp/muster-claims /run/inherited.claims; install -d -m 700 -o games -g games /var/tmp/muster-claims",
    "rm -rf /var/tmp/muster-claims; mv /run/inherited.claims /var/tmp/muster-claims", "folder-readonly",
    "file-permission", "home-readonly", says="muster-claims|permission denied|may not (read|write|enter)")  # fmt: skip

# Faults: the network.
row("the address is on an alias of the card, as ifconfig made them", f"{_KEEP}; ip address flush dev eth0; ip address "
    "add $at brd + dev eth0 label eth0:0; ip route add default via $via dev eth0", _GIVE, "interface-no-address",
    "interface-missing", says=r"eth0:0|alias|label")  # fmt: skip
row("the hardware address of the peer is written down, and the peer has a new card",
    "ip neigh replace $PEER lladdr 02:00:5e:10:00:01 dev eth0 nud permanent", "ip neigh del $PEER dev eth0", *SILENT,
    "arp-unanswered", says=r"hardware address|\bMAC\b|neighbou?r|lladdr|permanent", pair=True)  # fmt: skip
row("this host's disk is a clone of the peer's: a bridge still has the peer's address", "ip link add lxcbr0 type "
    "bridge; ip link set lxcbr0 up; ip address add $PEER/32 dev lxcbr0", "ip link del lxcbr0", *SILENT, *REJECTED,
    "duplicate-address", "address-overlap", "endpoint-nobody", "endpoint-foreign", says="lxcbr0",
    pair=True)  # fmt: skip
_STAMPED = "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 --tcp-flags SYN SYN --tcp-option 8 -j DROP"
firewall("an old firewall drops the peer's calls that have TCP's timestamps, as they all have", _STAMPED, on=0,
         says=r"timestamp|tcp.option")  # fmt: skip
row("the route to the peer allows a window of 20 bytes", "ip route add $PEER/32 dev eth0 window 20",
    "ip route del $PEER/32", "link-slow", "link-delay",
    says=r"window|slow|[kM]i?B/s|[kM]bit", pair=True)  # fmt: skip
firewall("a rule against forged packets wants the peer's to have come over no router, and theirs begin at 64",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 -m ttl --ttl-lt 255 -j DROP",
         says=r"\bTTL\b|hops?\b")  # fmt: skip
row("127.0.0.1 was taken from the loopback", "ip address del 127.0.0.1/8 dev lo; ip address add 127.0.0.2/32 dev lo",
    "ip address del 127.0.0.2/32 dev lo; ip address add 127.0.0.1/8 dev lo", "loopback-silent", "name-loopback",
    says=r"127\.0\.0\.1|loopback|\blocalhost\b", on=0)  # fmt: skip

# Oddities: the engine and its client.
watchdog("a watchdog starts the engine anew every few seconds, and containers live on", 6,
         SAME.replace("{", '{"live-restore": true, ', 1), "docker-down", "docker-refused", "docker-silent",
         says=r"restart|cannot connect|daemon running")  # fmt: skip
row("the user is in no group docker, and the engine's socket is open to all", "gpasswd -d muster docker; chmod 666 "
    "/run/docker.sock", "gpasswd -a muster docker; chmod 660 /run/docker.sock")  # fmt: skip
wrapper("docker is a script that lets one call run at a time", 'exec flock /opt/docker.lock docker.real "$@"',
        "docker-silent", before="install -m 666 /dev/null /opt/docker.lock",
        after="pkill -x flock; rm /opt/docker.lock",
        says=r"docker\.lock|flock|one (call|command)|at (once|a time)|(hang|hung|not (end|answer|finish)|waits)",
        )  # fmt: skip

# Oddities: the user, the shell, SSH.
shell("cd is a function that lists the folder", 'cd() { builtin cd "$@" && ls -la; }; export -f cd')
shell("PATH, HOME and more cannot be changed", "readonly PATH HOME USER SHELL LANG LC_ALL IFS TMPDIR PS4")
row("scripts of bash first load the site's modules, which says so", "echo 'echo Loading cuda/12.4, gcc/13' "
    f">/opt/modules.sh; cp {HOME}/.bashrc /run/bashrc; (echo 'export BASH_ENV=/opt/modules.sh'; cat /run/bashrc) "
    f">{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc; rm /opt/modules.sh")  # fmt: skip
row("port 22 is a multiplexer's, which says three lines before sshd does", f"printf 'Port 2222\\n' >{SSHD}; {AGAIN}; "
    "setsid python3 -c 'import socket, threading\nat = socket.create_server((\"\", 22))\n"
    "def copy(one, other):\n    try:\n        while told := one.recv(65536):\n            other.sendall(told)\n"
    "        other.shutdown(1)\n    except OSError:\n        pass\n"
    "def meet(one):\n    one.sendall(b\"All calls are recorded.\\r\\n\" * 3)\n"
    "    other = socket.create_connection((\"127.0.0.1\", 2222))\n"
    "    threading.Thread(target=copy, args=(one, other), daemon=True).start()\n    copy(other, one)\n"
    "while True:\n    threading.Thread(target=meet, args=(at.accept()[0],), daemon=True).start()' </dev/null "
    ">/dev/null 2>&1 & echo $! >/run/inherited.pid; sleep 1",
    f"kill $(cat /run/inherited.pid); sleep 0.2; rm {SSHD}; {AGAIN}", "ssh-silent", "ssh-lost")  # fmt: skip
row("SFTP may read and not write", "mv /usr/lib/openssh/sftp-server /usr/lib/openssh/sftp-server.kept; printf "
    "'#!/bin/sh\\nexec /usr/lib/openssh/sftp-server.kept -R \"$@\"\\n' >/usr/lib/openssh/sftp-server; chmod 755 "
    "/usr/lib/openssh/sftp-server", "mv /usr/lib/openssh/sftp-server.kept /usr/lib/openssh/sftp-server",
    "folder-readonly", "home-readonly", says="sftp|read.?only|permission denied")  # fmt: skip

# Oddities: folders, programs, the kernel.
row("the homes are read-only, and ~/.muster is a link to a disk that is not", f"{MADE}; mv {HOME}/.muster "
    f"/srv/muster; ln -s /srv/muster {HOME}/.muster; mount --bind /home /home; mount -o remount,bind,ro /home",
    f"umount -l /home; rm {HOME}/.muster; mv /srv/muster {HOME}/.muster", "home-readonly",
    "folder-readonly")  # fmt: skip
row("the kernel's tables of memory and cores are empty, as where lxcfs died", "for at in meminfo cpuinfo stat uptime; "
    "do mount --bind /dev/null /proc/$at; done", "for at in meminfo cpuinfo stat uptime; do umount /proc/$at; done",
    "memory-low")  # fmt: skip
row("the kernel has numbers for nine hundred processes and threads", "echo 1200 >/proc/sys/kernel/pid_max",
    "echo 4194304 >/proc/sys/kernel/pid_max", "process-limits")  # fmt: skip

# Oddities: the network and names.
row("a network of containers is a /8, and the hosts' network lies in it", "at=$(ip -4 -o address show eth0 | sed "
    "'s/.*inet //; s/[.].*//'); ip link add br-8 type bridge; ip link set br-8 up; ip address add "
    "$at.250.250.1/8 dev br-8", "ip link del br-8", "address-overlap", "other-network")  # fmt: skip
row("the card is called docker-wan", f"{_KEEP}; ip link set eth0 down; ip link set eth0 name docker-wan; ip link set "
    "docker-wan up; ip route add default via $via dev docker-wan", "read -r at via </run/inherited.card; ip link set "
    "docker-wan down; ip link set docker-wan name eth0; ip link set eth0 up; ip route add default via $via dev eth0",
    "container-bridge", "interface-missing")  # fmt: skip
firewall("nobody may call this host but by SSH, which may call all", "filter INPUT -i eth0 -p tcp --syn ! --dport 22 "
         "-j DROP", says="one.?way")  # fmt: skip
row("the route to the peer allows a window of 300 bytes, as for a modem", "ip route add $PEER/32 dev eth0 window 300",
    "ip route del $PEER/32", "link-slow", "link-delay", says=r"window|slow|[kM]i?B/s|[kM]bit", pair=True)  # fmt: skip
kernel("an old firewall drops calls with TCP's timestamps, and this kernel makes none", "net.ipv4.tcp_timestamps=0",
       more_breaks=f"iptables -t {_STAMPED.replace(' ', ' -I ', 1)}", more_mends="iptables -D INPUT 1",
       pair=True)  # fmt: skip

INHERITED, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
