"""A second list, of what rented machines have: faults first, then oddities. It is drawn apart, with a seed of its own.

Written, like the first, before anybody tried a row, by somebody who has not read preflight's rules. Some rows are two
things at once, each of which alone would stop nothing or would look different. What the run then does decides.
"""

from __future__ import annotations

import json
from typing import Any

from lab.unseen.row import AGAIN, ANSWERS, ENGINE, HOME, ROWS, SAME, SSHD, engine, row, server, shell

SEED = 20261124
_BEGIN = len(ROWS)
_RUNS = f"{HOME}/.muster/runs"
_MADE = f"install -d -o muster -g muster {HOME}/.muster {_RUNS}"
_ANEW = ENGINE.replace("{}", SAME) + ANSWERS
# A card that leads to nobody: a bridge without a port.
_CARD = "ip link add rent0 type bridge; ip link set rent0 up"
_SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")


def parent(name: str, kind: str, sets: dict[str, str], undoes: dict[str, str], *causes: str, **more: Any) -> None:
    """A row of a cgroup above those of all containers: what is written to its files."""
    group = f"/sys/fs/cgroup/{kind}/rented-{kind}"
    settings = json.dumps({**json.loads(SAME), "cgroup-parent": f"/rented-{kind}"})
    breaks, mends = ("".join(f"echo {value} >{group}/{file}; " for file, value in each.items())
                     for each in (sets, undoes))  # fmt: skip
    row(name, f"mkdir -p {group}; {breaks}{ENGINE.replace('{}', settings)}{ANSWERS}",
        f"{mends}{_ANEW}; rmdir {group}", *causes, **more)  # fmt: skip


def kernel(name: str, values: str, *causes: str, more_breaks: str = "", more_mends: str = "", **more: Any) -> None:
    """A row of kernel settings of the host's network (`name=value` words), and of what else is done."""
    names = " ".join(word.split("=")[0] for word in values.split())
    breaks = f"set -e; sysctl {names} >/run/rented.conf; sysctl -q -w {values}" + f"; {more_breaks}" * bool(more_breaks)
    row(name, breaks, f"{more_mends}; " * bool(more_mends) + "sysctl -q -p /run/rented.conf", *causes, **more)


def environment(name: str, before: str, line: str, after: str, *causes: str, **more: Any) -> None:
    """A row of a line of /etc/environment, which PAM gives to every session."""
    row(name, f"{before}; echo '{line}' >/etc/environment", f": >/etc/environment; {after}", *causes, **more)


# Faults: the engine and what lies under it.
row("an upgrade left an empty runc", "mv /usr/bin/runc /usr/bin/runc.kept; : >/usr/bin/runc; chmod 755 /usr/bin/runc",
    "mv /usr/bin/runc.kept /usr/bin/runc", "docker-refused", says="runc|exec format")  # fmt: skip
parent("the cgroup above all containers was left frozen", "freezer", {"freezer.state": "FROZEN"},
       {"freezer.state": "THAWED"}, "docker-silent", says="frozen|freezer")  # fmt: skip
parent("the cgroup above all containers allows no devices", "devices", {"devices.deny": "a"}, {}, "docker-refused",
       says=r"devices\.allow|devices cgroup")  # fmt: skip
parent("all containers together may take 2% of a core", "cpu", {"cpu.cfs_quota_us": "2000"},
       {"cpu.cfs_quota_us": "-1"}, says="quota|throttl|cpu time|of a core")  # fmt: skip
parent("100 MB for all containers, and who wants more is stopped instead of killed", "memory",
       {"memory.limit_in_bytes": "100000000", "memory.oom_control": "1"},
       {"memory.oom_control": "0", "memory.limit_in_bytes": "-1"}, "memory-low", says="(?<!shared )memory")  # fmt: skip
engine("docker's data root was moved, the images were not", {"data-root": "/var/lib/docker/moved"}, "image-missing",
       after="rm -rf /var/lib/docker/moved", says="no such image|data.root")  # fmt: skip
engine("the default runtime wants a driver that is not loaded", {"runtimes": {"nvidia": {
    "path": "/opt/nvidia-container-runtime"}}, "default-runtime": "nvidia"}, "docker-refused", "gpu-runtime",
       before="printf '#!/bin/sh\\necho \"nvidia-container-cli: initialization error: driver not loaded\" >&2\\nexit "
       "1\\n' >/opt/nvidia-container-runtime; chmod 755 /opt/nvidia-container-runtime",
       after="rm /opt/nvidia-container-runtime", says="nvidia-container|driver not loaded")  # fmt: skip
engine("a seccomp profile forbids ftruncate", {"seccomp-profile": "/etc/docker/profile.json"}, "proof-failed",
       before='echo \'{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["ftruncate"], "action": '
       '"SCMP_ACT_ERRNO"}]}\' >/etc/docker/profile.json', says="ftruncate|not permitted|shared memory")  # fmt: skip
row("the engine has a /home of its own", ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid unshare -m sh "
    "-c 'mount -t tmpfs none /home; exec dockerd'") + ANSWERS, _ANEW, "mount-missing",
    says="does not see|another /home")  # fmt: skip
engine("the engine's socket is root's only, and sudo wants a password", {"group": "root"}, "docker-permission",
       before="mv /etc/sudoers.d/muster /run/sudoers", after="mv /run/sudoers /etc/sudoers.d/muster")  # fmt: skip
row("the image names a card, and here that card leads to nobody", "docker tag muster-trainer:cpu muster-trainer:kept; "
    "at=$(docker create muster-trainer:cpu true); docker commit -c 'ENV GLOO_SOCKET_IFNAME=rent0' $at "
    f"muster-trainer:cpu; docker rm $at; {_CARD}; ip address add 10.213.7.1/24 dev rent0",
    "ip link del rent0; docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept muster-trainer:cpu; "
    "docker rmi muster-trainer:kept; docker image prune -f", "image-differs", "other-network", "container-bridge",
    "interface-down", "settings-differ", says="rent0")  # fmt: skip

# Faults: the user's shell, settings and folders.
shell("DOCKER_CONTENT_TRUST is set", "export DOCKER_CONTENT_TRUST=1", "docker-refused", says="trust|notary")
shell("DOCKER_API_VERSION is that of 2013", "export DOCKER_API_VERSION=1.12", "docker-refused", "docker-down",
      says="too old|api version")  # fmt: skip
shell("DOCKER_DEFAULT_PLATFORM is arm64", "export DOCKER_DEFAULT_PLATFORM=linux/arm64", "docker-refused",
      says="platform|arm64")  # fmt: skip
shell("docker wants TLS, and has no certificates", "export DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=/etc/docker/gone",
      "docker-refused", "docker-down", says=r"ca\.pem|TLS|certificate")  # fmt: skip
shell("docker is a function that calls podman", 'docker() { podman "$@"; }; export -f docker', "docker-missing",
      "podman-command", says="podman")  # fmt: skip
shell("the shell's file ends in another shell", "exec dash", "ssh-shell", says="said nothing|no answer|no output")
shell("the shell asks a question first", "read -r -p 'Do you accept the terms? (yes/no) ' answer", "ssh-shell",
      "ssh-silent", says="do you accept|standard input|question")  # fmt: skip
row("the user's shell is a restricted one", "usermod -s /bin/rbash muster", "usermod -s /bin/bash muster", "ssh-shell",
    says="restricted")  # fmt: skip
row("the first python3 of PATH lacks its library", "printf '#!/bin/sh\\necho \"python3: error while loading shared "
    "libraries: libpython3.9.so.1.0: cannot open shared object file\" >&2\\nexit 127\\n' >/usr/local/bin/python3; "
    "chmod 755 /usr/local/bin/python3", "rm /usr/local/bin/python3", "no-python", "probe-died",
    says="libpython")  # fmt: skip
environment("LD_LIBRARY_PATH has an empty libz", "mkdir -p /opt/old/lib; : >/opt/old/lib/libz.so.1",
            "LD_LIBRARY_PATH=/opt/old/lib", "rm -r /opt/old", "no-python", "probe-died",
            says="libz|shared librar")  # fmt: skip
row("a limit of open files that nobody may set", "echo '* hard nofile 4000000000' >/etc/security/limits.d/90-many.conf",
    "rm /etc/security/limits.d/90-many.conf", "ssh-shell",
    says=r"(status|code|with|exited) 254|\bPAM\b|limits\.")  # fmt: skip
server("sessions that say nothing for four seconds are closed", "ChannelTimeout session=4s",
       "UnusedConnectionTimeout 4s", causes=("ssh-lost",), says="idle|ChannelTimeout|closed after")  # fmt: skip
row("there is no SFTP server", "mv /usr/lib/openssh/sftp-server /run/sftp-server",
    "mv /run/sftp-server /usr/lib/openssh/sftp-server", says="sftp|subsystem")  # fmt: skip
row("256 kB for the runs", f"{_MADE}; mount -t tmpfs -o size=256k,uid=1000,gid=1000,mode=700 none {_RUNS}",
    f"umount -l {_RUNS}", "disk-full", "disk-quota", says="no space|(kB|KiB|bytes) (are )?(left|free)")  # fmt: skip
row("four files for the runs", f"{_MADE}; mount -t tmpfs -o nr_inodes=4,uid=1000,gid=1000,mode=700 none {_RUNS}",
    f"umount -l {_RUNS}", "inodes-full", "disk-full", "disk-quota", says="no space|inode")  # fmt: skip
row("~/.muster is a link, and the home's mount follows none", f"{_MADE}; mv {HOME}/.muster /srv/muster; ln -s "
    f"/srv/muster {HOME}/.muster; mount --bind {HOME} {HOME}; mount -o remount,bind,nosymfollow {HOME}",
    f"umount -l {HOME}; rm {HOME}/.muster; mv /srv/muster {HOME}/.muster",
    says="symbolic link|symlink|nosymfollow|too many levels")  # fmt: skip

# Faults: the network.
row("an inspector of packets drops the store's greeting",
    "iptables -I INPUT -i eth0 -p tcp -m string --algo bm --hex-string '|cef7853c|' -j DROP", "iptables -D INPUT 1",
    "rendezvous-dropped", "connection-cut", says=r"TCPStore|the store\b|greeting|inspect", on=0, pair=True)  # fmt: skip
kernel("calls ask for ECN and never without, and the firewall knows no ECN",
       "net.ipv4.tcp_ecn=1 net.ipv4.tcp_ecn_fallback=0", *_SILENT, says=r"\bECN\b", pair=True,
       more_breaks="iptables -I OUTPUT -o eth0 -p tcp --syn -m ecn --ecn-tcp-ece -j DROP",
       more_mends="iptables -D OUTPUT 1")  # fmt: skip
kernel("connections are forgotten after a second, and what is of none is dropped",
       "net.netfilter.nf_conntrack_tcp_timeout_established=1 net.netfilter.nf_conntrack_tcp_loose=0",
       "connection-cut", says="idle|conntrack|nothing was sent", pair=True,
       more_breaks="iptables -I INPUT -i eth0 -p tcp ! --dport 22 -m conntrack --ctstate INVALID -j DROP",
       more_mends="iptables -D INPUT 1")  # fmt: skip
row("the peer's connections are not tracked, and only tracked ones are let in",
    "set -e; iptables -t raw -I PREROUTING -i eth0 -p tcp -s $PEER -j NOTRACK; iptables -I INPUT -i eth0 -p tcp -s "
    "$PEER -m conntrack ! --ctstate NEW,ESTABLISHED,RELATED -j DROP",
    "iptables -D INPUT 1; iptables -t raw -D PREROUTING 1", *_SILENT, pair=True)  # fmt: skip
kernel("the user's way to the peer is not root's, and the kernel wants one way", "net.ipv4.conf.eth0.rp_filter=1",
       *_SILENT, "arp-unanswered", says="rp_filter|reverse path|rent0", pair=True,
       more_breaks=f"{_CARD}; ip route add $PEER/32 dev rent0; ip route add $PEER/32 dev eth0 table 98; "
       "ip rule add uidrange 1000-1000 lookup 98",
       more_mends="ip rule del uidrange 1000-1000 lookup 98; ip route flush table 98; ip link del rent0")  # fmt: skip
row("only members of a group may call out, and containers are in none",
    "set -e; iptables -I OUTPUT -o eth0 -p tcp --syn -d $PEER -j DROP; iptables -I OUTPUT -o eth0 -p tcp --syn -d "
    "$PEER -m owner --gid-owner docker --suppl-groups -j ACCEPT",
    "iptables -D OUTPUT 1; iptables -D OUTPUT 1", *_SILENT, pair=True)  # fmt: skip
row("8 MB from the peer are paid for, then nothing comes", "set -e; iptables -I INPUT -i eth0 -p tcp -s $PEER -j "
    "DROP; iptables -I INPUT -i eth0 -p tcp -s $PEER -m quota --quota 8000000 -j ACCEPT",
    "iptables -D INPUT 1; iptables -D INPUT 1", *_SILENT, "connection-cut", pair=True)  # fmt: skip
row("packets to the peer carry the address of another lease",
    "ip address add 198.51.100.7/32 dev eth0; ip route add $PEER/32 dev eth0 src 198.51.100.7",
    "ip route del $PEER/32; ip address del 198.51.100.7/32 dev eth0", *_SILENT, "other-network",
    says=r"198\.51\.100\.7", pair=True)  # fmt: skip
kernel("users may listen from port 30000 on", "net.ipv4.ip_unprivileged_port_start=30000",
       says="permission denied.*29500|29500.*permission denied|privileged port|unprivileged", on=0)  # fmt: skip
row("twenty local ports, and nineteen of them are reserved", "set -e; echo 50000 50019 "
    ">/proc/sys/net/ipv4/ip_local_port_range; echo 50000-50018 >/proc/sys/net/ipv4/ip_local_reserved_ports",
    "echo >/proc/sys/net/ipv4/ip_local_reserved_ports; echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range",
    "few-ports", says="reserved")  # fmt: skip
row("a hundred local ports, and a leftover listens on all but two",
    "echo 50000 50099 >/proc/sys/net/ipv4/ip_local_port_range; setsid python3 -c 'import socket, time; "
    "kept = [socket.create_server((\"\", port)) for port in range(50000, 50098)]; time.sleep(9999)' "
    "</dev/null >/dev/null 2>&1 & echo $! >/run/rented.pid; sleep 2; kill -0 $(cat /run/rented.pid)",
    "kill $(cat /run/rented.pid); echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range",
    "few-ports", "local-ports-used")  # fmt: skip

# Oddities: the engine and its client.
row("docker's settings are half of a file, and root's", f"mkdir -p {HOME}/.docker; echo '{{\"auths\": {{' "
    f">{HOME}/.docker/config.json; chmod 600 {HOME}/.docker/config.json", f"rm -r {HOME}/.docker")  # fmt: skip
row("an old plugin of docker's never answers", f"mkdir -p {HOME}/.docker/cli-plugins; printf '#!/bin/sh\\nexec sleep "
    f"987\\n' >{HOME}/.docker/cli-plugins/docker-old; chmod 755 {HOME}/.docker/cli-plugins/docker-old; chown -R muster "
    f"{HOME}/.docker", f"rm -r {HOME}/.docker; pkill -fx 'sleep 987' || true", "docker-silent",
    says="plugin|docker-old")  # fmt: skip
engine("the default runtime is a script that counts calls", {"runtimes": {"counted": {"path": "/opt/counted"}},
       "default-runtime": "counted"}, before="printf '#!/bin/sh\\necho >>/run/counted\\nexec runc \"$@\"\\n' "
       ">/opt/counted; chmod 755 /opt/counted", after="rm -f /opt/counted /run/counted")  # fmt: skip
engine("a seccomp profile older than the newer calls", {"seccomp-profile": "/etc/docker/profile.json"}, "proof-failed",
       before='echo \'{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["statx", "faccessat2", "openat2", '
       '"close_range", "pidfd_open", "rseq", "membarrier", "get_mempolicy", "io_uring_setup"], "action": '
       '"SCMP_ACT_ERRNO"}]}\' >/etc/docker/profile.json', says="not permitted")  # fmt: skip
environment("the engine listens elsewhere, and DOCKER_HOST says so",
            ENGINE.replace("{}", json.dumps({**json.loads(SAME), "hosts": ["unix:///run/rented.sock"]}))
            + f"export DOCKER_HOST=unix:///run/rented.sock; {ANSWERS}", "DOCKER_HOST=unix:///run/rented.sock",
            _ANEW)  # fmt: skip
environment("a rootless engine left its socket and its settings", "install -d -o muster -m 700 /run/user/1000; "
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/user/1000/docker.sock\")'; "
            f"chown muster /run/user/1000/docker.sock; install -d -o muster {HOME}/.config {HOME}/.config/docker; "
            f"echo '{{}}' >{HOME}/.config/docker/daemon.json", "XDG_RUNTIME_DIR=/run/user/1000",
            f"rm -r /run/user/1000 {HOME}/.config/docker; rmdir {HOME}/.config")  # fmt: skip

# Oddities: the user, the shell, SSH.
row("the home's path has a space", f"ln -s muster '/home/mu ster'; cp /etc/passwd /run/passwd; sed -i "
    f"'s#:{HOME}:#:/home/mu ster:#' /etc/passwd", "cat /run/passwd >/etc/passwd; rm '/home/mu ster'")  # fmt: skip
row("another name has the user's number, and comes first", "cp /etc/passwd /run/passwd; sed -i "
    "'1i ubuntu:x:1000:1000:cloud:/home/ubuntu:/bin/bash' /etc/passwd", "cat /run/passwd >/etc/passwd")  # fmt: skip
shell("each shell says good-bye on standard output", "trap 'echo The session was recorded.' EXIT")
shell("the shell neither overwrites files nor expands patterns", "set -C -f -u; readonly TMOUT=60")
_SITE = "$(python3 -S -c 'import site; print(site.getsitepackages()[0])')"
row("each start of python3 prints a licence", f"mkdir -p {_SITE}; echo 'import sys; sys.stdout.write(\"Licensed to "
    f"the cluster.\\\\n\")' >{_SITE}/licence.pth", f"rm {_SITE}/licence.pth")  # fmt: skip
row("a long banner, and who calls without logging in must wait", "yes 'Authorized use only.' | head -n 200 "
    f">/etc/legal; printf 'Banner /etc/legal\\nPerSourcePenalties noauth:90s min:5s\\n' >{SSHD}; {AGAIN}",
    f"rm {SSHD} /etc/legal; {AGAIN}", "ssh-refused", "ssh-lost")  # fmt: skip
row("the sixth call of SSH within half a minute is dropped",
    "iptables -I INPUT -p tcp --dport 22 --syn -m recent --name rented --update --seconds 30 --hitcount 6 -j DROP; "
    "iptables -I INPUT -p tcp --dport 22 --syn -m recent --name rented --set",
    "iptables -D INPUT 1; iptables -D INPUT 1", "ssh-timeout", "ssh-silent")  # fmt: skip
row("users see no processes but their own", "mount -o remount,hidepid=2 /proc", "mount -o remount,hidepid=0 /proc")

# Oddities: the network and names.
kernel("the network's settings are hardened by the book", "net.ipv4.icmp_echo_ignore_all=1 net.ipv4.tcp_syncookies=2 "
       "net.ipv4.tcp_rfc1337=1 net.ipv4.conf.all.log_martians=1 net.ipv4.conf.all.accept_redirects=0 "
       "net.ipv4.conf.all.send_redirects=0 net.ipv4.tcp_retries2=4 net.ipv4.tcp_keepalive_time=2 "
       "net.ipv4.tcp_keepalive_intvl=1 net.ipv4.tcp_keepalive_probes=1 net.ipv4.ip_default_ttl=1")  # fmt: skip
row("sixty bridges with addresses, and a thousand routes to nowhere", "for n in $(seq 60); do echo link add rent$n "
    "type bridge; echo address add 10.213.$n.1/24 dev rent$n; echo link set rent$n up; done | ip -batch -; "
    "for n in $(seq 1000); do echo route add blackhole 10.214.$((n / 250)).$((n % 250))/32; done | ip -batch -",
    "ip route flush root 10.214.0.0/16; for n in $(seq 60); do echo link del rent$n; done | ip -batch -")  # fmt: skip
kernel("root's way to the peer leads nowhere, the user's does not", "net.ipv4.conf.eth0.rp_filter=2",
       *_SILENT, says="rent0", pair=True,
       more_breaks=f"{_CARD}; ip route add $PEER/32 dev rent0; ip route add $PEER/32 dev eth0 table 98; "
       "ip rule add uidrange 1000-1000 lookup 98",
       more_mends="ip rule del uidrange 1000-1000 lookup 98; ip route flush table 98; ip link del rent0")  # fmt: skip
row("the host's name has a space and an umlaut", "uname -n >/run/name; printf 'GPU_\\303\\274ber 1' "
    ">/proc/sys/kernel/hostname", "cat /run/name >/proc/sys/kernel/hostname", "name-unresolvable")  # fmt: skip
row("/etc/hosts is empty", "cp /etc/hosts /run/hosts; : >/etc/hosts", "cat /run/hosts >/etc/hosts",
    "name-unresolvable", says="localhost|/etc/hosts")  # fmt: skip

RENTED, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
