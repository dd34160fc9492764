"""Rows about limits, missing programs, and other peculiarities of a system. Faults first, then oddities."""

from lab.machines.row import ANEW, HOME, away, row, shell, wrapper

row(
    "there is no SFTP server",
    "mv /usr/lib/openssh/sftp-server /run/sftp-server",
    "mv /run/sftp-server /usr/lib/openssh/sftp-server",
    says="sftp|subsystem",
)
row(
    "root's umask left /etc/passwd closed to users",
    "chmod 600 /etc/passwd",
    "chmod 644 /etc/passwd",
    says=r"passwd|no name|cannot find name|unknown (uid|user)|who it is",
)
row(
    "a minimal system: neither setsid, nohup, timeout, flock nor mktemp",
    "mkdir /opt/away; for each in setsid nohup "
    "timeout flock mktemp; do at=$(command -v $each); mv $at /opt/away/$each; echo mv /opt/away/$each $at; done "
    ">/run/lab.back",
    "sh /run/lab.back; rmdir /opt/away",
    "command-missing",
    says=r"\b(setsid|nohup|timeout|flock|mktemp)\b",
)
away("there is no tar", "/usr/bin/tar", "command-missing", says=r"\btar\b")
row(
    "a hundred local ports, and a leftover listens on all but two",
    "echo 50000 50099 >/proc/sys/net/ipv4/ip_local_port_range; setsid python3 -c 'import socket, time; "
    'kept = [socket.create_server(("", port)) for port in range(50000, 50098)]; time.sleep(9999)\' '
    "</dev/null >/dev/null 2>&1 & echo $! >/run/lab.pid; sleep 2; kill -0 $(cat /run/lab.pid)",
    "kill $(cat /run/lab.pid); echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range",
    "few-ports",
    "local-ports-used",
)
row(
    "twenty local ports, and nineteen of them are reserved",
    "set -e; echo 50000 50019 "
    ">/proc/sys/net/ipv4/ip_local_port_range; echo 50000-50018 >/proc/sys/net/ipv4/ip_local_reserved_ports",
    "echo >/proc/sys/net/ipv4/ip_local_reserved_ports; echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range",
    "few-ports",
    says="reserved",
)
row(
    "the kernel's tables of memory and cores are empty, as where lxcfs died",
    "for at in meminfo cpuinfo stat uptime; do mount --bind /dev/null /proc/$at; done",
    "for at in meminfo cpuinfo stat uptime; do umount /proc/$at; done",
    "memory-low",
)
shell("the user's programs may take 200 MB", "ulimit -v 200000", "memory-low", says="memory|allocat|reserve")
row(
    "ip is an old one that knows no JSON",
    "mv /usr/bin/ip /usr/bin/ip.kept; printf '#!/bin/sh\\nfor at; do case $at "
    'in -j*|--json) echo "Option \\\\"$at\\\\" is unknown, try \\\\"ip -help\\\\"." >&2; exit 255;; esac; done; '
    'exec ip.kept "$@"\\n\' >/usr/bin/ip; chmod 755 /usr/bin/ip',
    "mv /usr/bin/ip.kept /usr/bin/ip",
    "no-iproute2",
    says=r"iproute2|\bip\b.*(unknown|JSON|old)",
)
row(
    "first in PATH is an ip of the user's own, which tells the public address",
    f"mkdir {HOME}/bin; printf "
    f"'#!/bin/sh\\necho 203.0.113.7\\n' >{HOME}/bin/ip; chmod 755 {HOME}/bin/ip; chown -R muster {HOME}/bin; cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'export PATH=$HOME/bin:$PATH'; cat /run/bashrc) >{HOME}/.bashrc",
    f"cp /run/bashrc {HOME}/.bashrc; rm -r {HOME}/bin",
    "no-iproute2",
    says=r"\bip\b|203\.0\.113\.7",
)
shell(
    "Python stays to be asked when a program ends, and warnings are errors",
    "export PYTHONINSPECT=1 PYTHONWARNINGS=error PYTHONOPTIMIZE=2 PYTHONMALLOC=debug",
    "no-python",
    "probe-died",
    says=r"PYTHON(INSPECT|WARNINGS|OPTIMIZE)|interactive",
)
row(
    "the host's Python is the minimal one, without json",
    "for at in /usr/lib/python3.*/json; do mv $at $at.kept; done",
    "for at in /usr/lib/python3.*/json.kept; do mv $at ${at%.kept}; done",
    "no-python",
    "probe-died",
    says="json.{0,30}(missing|module)|No module named",
)
shell("the user's programs may have eight open files", "ulimit -n 8", "open-files", says="open files")
row(
    "dockerd may open hardly more files than it has open",
    "at=$(pgrep -x dockerd); most=$(ls /proc/$at/fd | sort -n | "
    "tail -n 1); prlimit --pid $at --nofile=$((most + 4)):$((most + 4))",
    ANEW,
    "open-files",
    "docker-silent",
    "docker-refused",
    says="too many open files|open files",
)
row(
    "the kernel has numbers for nine hundred processes and threads",
    "echo 1200 >/proc/sys/kernel/pid_max",
    "echo 4194304 >/proc/sys/kernel/pid_max",
    "process-limits",
)
shell("the user may have 12 processes", "ulimit -u 12", "process-limits", says="thread|process|fork|temporarily")
wrapper(
    "docker is the site's script, which gives each container its variables: TORCH_DISTRIBUTED_DEBUG is DETAIL",
    'case $1 in run|create) verb=$1; shift; set -- $verb --env TORCH_DISTRIBUTED_DEBUG=DETAIL "$@";; esac\n'
    'exec docker.real "$@"',
    "settings-differ",
    "docker-wrapped",
    says=r"TORCH_DISTRIBUTED_DEBUG|\bDETAIL\b",
)

# Odd but healthy: a run trains.
row(
    "the password ends in five days: who logs in is told",
    "chage -M 90 -W 14 -I 30 -d $(date -d '85 days ago' +%F) muster",
    "chage -M 99999 -W 7 -I -1 -d 20000 muster",
)
