"""A fourth list, of what start-ups and home labs have: faults first, then oddities. It has a seed of its own.

Written before anybody tried preflight on a row, by somebody who has not read its rules; what the other three lists and
lab/drawn have is left out. Some rows are two small things at once. What the run then does decides what is a fault.
"""

from __future__ import annotations

from typing import Any

from lab.unseen.campus import firewall
from lab.unseen.row import AGAIN, ANSWERS, ENGINE, HOME, ROWS, SAME, SSHD, engine, row, server, shell

SEED = 20261126
_BEGIN = len(ROWS)
_IMAGE = "muster-trainer:cpu"
_ANEW = ENGINE.replace("{}", SAME) + ANSWERS
_SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")
_HUNG_UP = ("ssh-refused", "ssh-lost", "ssh-silent", "ssh-hangup")
_QUIET = "</dev/null >/dev/null 2>&1 & echo $! >/run/homelab.pid"
_STOP = "kill $(cat /run/homelab.pid)"


def away(name: str, path: str, *causes: str, **more: Any) -> None:
    """A row of a file that is gone."""
    row(name, f"mv {path} {path}.kept", f"mv {path}.kept {path}", *causes, **more)


def pam(name: str, line: str, *causes: str, before: str = "true", after: str = "true", **more: Any) -> None:
    """A row of a line more in what PAM does for sshd."""
    row(name, f"{before}; cp /etc/pam.d/sshd /run/homelab.pam; echo '{line}' >>/etc/pam.d/sshd",
        f"cat /run/homelab.pam >/etc/pam.d/sshd; {after}", *causes, **more)  # fmt: skip


def profile(name: str, action: str, *calls: str, **more: Any) -> None:
    """A row of a seccomp profile that does this to who makes one of those calls."""
    listed = ", ".join(f'"{call}"' for call in calls)
    rules = f'[{{"names": [{listed}], "action": "SCMP_ACT_{action}"}}]'
    told = f'{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": {rules}}}'
    engine(name, {"seccomp-profile": "/etc/docker/homelab.json"}, *more.pop("causes", ()),
           before=f"echo '{told}' >/etc/docker/homelab.json", after="rm /etc/docker/homelab.json", **more)  # fmt: skip


def loop(name: str, seconds: float, does: str, *causes: str, more_mends: str = "true", **more: Any) -> None:
    """A row of something that root does again and again."""
    row(name, f"setsid sh -c 'while sleep {seconds}; do {does}; done' {_QUIET}",
        f"pkill -KILL -s $(cat /run/homelab.pid); {more_mends}", *causes, **more)  # fmt: skip


# Faults: the engine and what lies under it.
row("containerd was upgraded and not started anew: the shim speaks a newer protocol", "mv "
    "/usr/bin/containerd-shim-runc-v2 /run/homelab.shim; printf '#!/bin/sh\\ncase \"$*\" in *start*) printf "
    "\\047{\"version\":3,\"address\":\"unix:///run/none.sock\",\"protocol\":\"ttrpc\"}\\047;; esac\\n' "
    ">/usr/bin/containerd-shim-runc-v2; chmod 755 /usr/bin/containerd-shim-runc-v2",
    "mv -f /run/homelab.shim /usr/bin/containerd-shim-runc-v2", "docker-refused", says=r"\bshim\b")  # fmt: skip
row("somebody cleaned /var/lib/docker/overlay2 by hand: a layer of the image is gone", "set -e; at=$(docker image "
    f"inspect -f '{{{{.GraphDriver.Data.UpperDir}}}}' {_IMAGE}); echo ${{at%/diff}} >/run/homelab.layer; mv "
    "${at%/diff} /var/lib/docker/homelab", "mv /var/lib/docker/homelab $(cat /run/homelab.layer)", "docker-refused",
    says=r"overlay2|no such file|\blayer")  # fmt: skip
engine("daemon.json has a key that the new engine no longer knows", {"cluster-store": "consul://127.0.0.1:8500"},
       "docker-down", says=r"cluster-store|daemon\.json|configuration")  # fmt: skip
row("/var/run is a folder of its own, no longer a link to /run", "rm /var/run; mkdir /var/run",
    "rm -rf /var/run; ln -s /run /var/run", "docker-down", says="/var/run")  # fmt: skip
row("one hierarchy of cgroups is read-only, as in an unprivileged LXC container", "mount -o remount,bind,ro "
    "/sys/fs/cgroup/devices", "mount -o remount,bind,rw /sys/fs/cgroup/devices", "docker-refused",
    says="cgroup|read-only")  # fmt: skip
row("the first docker of PATH was copied from an ARM board", "printf "
    "'\\177ELF\\2\\1\\1\\0%8s\\2\\0\\267\\0\\1\\0\\0\\0%40s' | tr ' ' '\\0' >/usr/local/bin/docker; chmod 755 "
    "/usr/local/bin/docker", "rm /usr/local/bin/docker", "architecture-differs",
    says=r"exec format|cannot execute|not executable|\barm|aarch64|another (machine|architecture)")  # fmt: skip
profile("a seccomp profile recorded for another program kills who asks for its cores", "KILL_PROCESS",
        "sched_getaffinity", causes=("proof-failed",),
        says=r"SIGSYS|bad system call|signal 31|\b(159|-31)\b|seccomp")  # fmt: skip
profile("a seccomp profile for containers that are no servers forbids listen", "ERRNO", "listen",
        causes=("proof-failed",), says=r"\blisten|not permitted|seccomp")  # fmt: skip

# Faults: who may log in, and what a login does.
row("an archive that root unpacked has closed / to users", "chmod 700 /", "chmod 755 /", "ssh-key", "ssh-shell",
    "file-permission", says="permission denied|may not (read|enter)|not (readable|executable)")  # fmt: skip
server("sshd no longer asks PAM, and the account has no password: it counts as locked", "UsePAM no",
       causes=("ssh-key",), says=r"\block(ed)?\b|UsePAM")  # fmt: skip
pam("a security product was removed, its line for PAM was not", "account required pam_sentinel.so", "ssh-key",
    "ssh-shell", *_HUNG_UP, says=r"\bPAM\b|closed|hung up")  # fmt: skip
row("the directory that knows everybody's keys never answers", "printf '#!/bin/sh\\nexec sleep 1986\\n' "
    f">/usr/local/bin/keys; chmod 755 /usr/local/bin/keys; printf '%s\\n' 'AuthorizedKeysFile none' "
    f"'AuthorizedKeysCommand /usr/local/bin/keys %u' 'AuthorizedKeysCommandUser nobody' >{SSHD}; {AGAIN}",
    f"rm {SSHD} /usr/local/bin/keys; {AGAIN}; pkill -fx 'sleep 1986'", "ssh-key", "ssh-timeout", "ssh-slow",
    "ssh-silent", says=r"(log.?in|authenticat|key)\w*\b.{0,60}(not (end|finish|answer)|hang|hung|timed out|no answer)",
    )  # fmt: skip
row("strangers hold all the places that sshd has for who has not logged in", "printf '%s\\n' 'MaxStartups 2:100:2' "
    f"'LoginGraceTime 0' 'PerSourcePenalties no' >{SSHD}; {AGAIN}; setsid python3 -c 'import socket, time; kept = "
    f"[socket.create_connection((\"127.0.0.1\", 22)) for _ in range(2)]; time.sleep(9999)' {_QUIET}; sleep 1",
    f"{_STOP}; rm {SSHD}; {AGAIN}", *_HUNG_UP,
    says="MaxStartups|not allowed at this time|closed|reset|hung up")  # fmt: skip
row("port 22 is a tarpit for strangers, sshd has moved to 2222", f"printf 'Port 2222\\n' >{SSHD}; {AGAIN}; setsid "
    "python3 -c 'import random, socket, threading, time\nat = socket.create_server((\"\", 22))\n"
    "def stick(one):\n    while True:\n        one.sendall(b\"%x\\r\\n\" % random.getrandbits(64))\n"
    "        time.sleep(2)\n"
    f"while True:\n    threading.Thread(target=stick, args=(at.accept()[0],), daemon=True).start()' {_QUIET}; sleep 1",
    f"{_STOP}; sleep 0.2; rm {SSHD}; {AGAIN}", "ssh-silent", "ssh-timeout", "ssh-lost",
    says=r"banner|tarpit|endless|identif|greet|not (an )?ssh|no ssh|never (said|says)")  # fmt: skip
pam("each login waits ten seconds for a directory, and sshd four for the login",
    "account optional pam_exec.so /usr/bin/sleep 10", "ssh-key", "ssh-timeout", *_HUNG_UP, before=f"printf "
    f"'LoginGraceTime 4\\nPerSourcePenalties no\\n' >{SSHD}; {AGAIN}", after=f"rm {SSHD}; {AGAIN}",
    says="LoginGraceTime|grace|closed|hung up|reset")  # fmt: skip
away("an upgrade of OpenSSH stopped halfway: sshd-auth is missing", "/usr/lib/openssh/sshd-auth", *_HUNG_UP,
     says="closed|reset|hung up")  # fmt: skip
shell("the shell's file leaves by exit where nobody types", "case $- in *i*) ;; *) exit ;; esac", "ssh-shell",
      says=r"said nothing|no (answer|output)|nothing (came|was said)|without (a word|output)|\.bashrc")  # fmt: skip
row("each shell leaves a job that holds its output", f"cp {HOME}/.bashrc /run/bashrc; (echo 'sleep 1998 &'; cat "
    f"/run/bashrc) >{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc; pkill -fx 'sleep 1998'", "ssh-shell",
    says=r"background|left (running|behind)|(hold|keep)s?\b.*\b(open|output)|(not|never) (end|close|finish|return)|"
    r"\.bashrc")  # fmt: skip
shell("each shell waits for a disk that is not mounted", "until mountpoint -q /mnt/archive; do sleep 1; done",
      "ssh-shell", "ssh-silent", "ssh-timeout",
      says=r"shell\b.*(wait|hang|hung|not (end|start|answer)|silent|stuck|said nothing)|\.bashrc")  # fmt: skip
row("sessions are recorded by script, which has a terminal", "printf '#!/bin/sh\\nexec script -q -e -c "
    "\"$SSH_ORIGINAL_COMMAND\" /dev/null\\n' >/usr/local/bin/recorded; chmod 755 /usr/local/bin/recorded; printf "
    f"'ForceCommand /usr/local/bin/recorded\\n' >{SSHD}; {AGAIN}", f"rm {SSHD} /usr/local/bin/recorded; {AGAIN}",
    "ssh-shell",
    says=r"terminal|\bpty\b|\btty\b|carriage|\bCR\b|line (end|break)|ForceCommand|recorded|echo(es|ed)?\b")  # fmt: skip
row("ip is an old one that knows no JSON", "mv /usr/bin/ip /usr/bin/ip.kept; printf '#!/bin/sh\\nfor at; do case $at "
    "in -j*|--json) echo \"Option \\\\\"$at\\\\\" is unknown, try \\\\\"ip -help\\\\\".\" >&2; exit 255;; esac; done; "
    "exec ip.kept \"$@\"\\n' >/usr/bin/ip; chmod 755 /usr/bin/ip", "mv /usr/bin/ip.kept /usr/bin/ip", "no-iproute2",
    says=r"iproute2|\bip\b.*(unknown|JSON|old)")  # fmt: skip
row("df hangs, as with a server of files that is gone", "mv /usr/bin/df /usr/bin/df.kept; printf '#!/bin/sh\\nexec "
    "sleep 1987\\n' >/usr/bin/df; chmod 755 /usr/bin/df", "mv /usr/bin/df.kept /usr/bin/df; pkill -fx 'sleep 1987'",
    says=r"\bdf\b|(disk|free space|file system)\b.*(hang|hung|not (end|answer|finish)|timed out)")  # fmt: skip
loop("a cleaner empties /tmp and /var/tmp each second", 1, "find /tmp /var/tmp -mindepth 1 -user muster -delete",
     "folder-readonly", says=r"/tmp\b|no such file|vanish|disappear")  # fmt: skip

# Faults: the network.
row("a client's connection has the rendezvous's port as its own", "ss -K state time-wait sport = :29500; setsid "
    "python3 -c 'import socket, sys, time; kept = socket.create_connection((sys.argv[1], 22), source_address=(\"\", "
    f"29500)); time.sleep(9999)' $PEER {_QUIET}; sleep 1; kill -0 $(cat /run/homelab.pid)", _STOP, "port-busy",
    says=r"\b29500\b.*(in use|taken|busy|holds?|used)|(in use|taken|busy|holds?|used).*\b29500\b", on=0)  # fmt: skip
firewall("a guard against floods answers the peer's calls, then resets them",
         "filter INPUT -i eth0 -s $PEER -p tcp -m conntrack --ctstate UNTRACKED -j SYNPROXY --sack-perm --timestamp "
         "--wscale 7 --mss 1460", "raw PREROUTING -i eth0 -s $PEER -p tcp --syn -j CT --notrack",
         causes=(*_SILENT, "connection-cut", "rendezvous-rejected", "all-ports-rejected", "data-ports-rejected"),
         says=r"SYNPROXY|nothing (comes|came|arrive)|connect(s|ed)\b.*\b(but|never|nothing)\b|silent|reset", on=0,
         )  # fmt: skip
firewall("the peer's card was replaced, the list of hardware addresses was not",
         "filter INPUT -i eth0 -s $PEER -m mac ! --mac-source 02:00:5e:10:00:01 -j DROP",
         says=r"hardware address|\bMAC\b")  # fmt: skip
firewall("of each connection from the peer the first 40 packets pass: the inspector's licence has ended",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 -m connbytes --connbytes 41: --connbytes-dir both "
         "--connbytes-mode packets -j DROP", causes=(*_SILENT, "connection-cut", "link-slow"),
         says=r"stall|stopped|after \S+ ?([kM]i?B|bytes|packets)|connbytes|nothing (comes|came|arrive)")  # fmt: skip
row("a netmask was mistyped: the peer's address is a broadcast of this host's", "ip address add 198.51.100.9/32 "
    "broadcast $PEER dev eth0", "ip address del 198.51.100.9/32 dev eth0", *_SILENT, "address-overlap",
    "duplicate-address", "all-ports-rejected", pair=True,
    says=r"broadcast|198\.51\.100\.9|(connect|route|network)\b.*(permission denied|EACCES)|network is unreachable",
    )  # fmt: skip
row("a rule sends one port by a VPN that is off", "set -e; ip link add vpn0 type bridge; ip link set vpn0 up; ip "
    "address add 10.218.0.2/24 dev vpn0; ip route add default dev vpn0 table 97; ip rule add ipproto tcp dport "
    "29500 lookup 97",
    "ip rule del ipproto tcp dport 29500 lookup 97; ip link del vpn0", *_SILENT, "other-network", "interface-down",
    "arp-unanswered", says=r"vpn0|policy rout|ip rule|table 97", pair=True)  # fmt: skip
row("hardened against small segments: none may be smaller than a packet of 1500 bytes",
    "sysctl -q -w net.ipv4.tcp_min_snd_mss=1500", "sysctl -q -w net.ipv4.tcp_min_snd_mss=48", "mtu-blackhole",
    "ssh-silent", "ssh-timeout", "ssh-lost", says=r"min_snd_mss|\bMTU\b|\bMSS\b|(large|big) packets",
    pair=True)  # fmt: skip
row("the host is called localhost, and localhost is ::1, and IPv6 is off", "uname -n >/run/homelab.name; cp /etc/hosts "
    "/run/homelab.hosts; echo localhost >/proc/sys/kernel/hostname; echo '::1 localhost' >/etc/hosts",
    "cat /run/homelab.name >/proc/sys/kernel/hostname; cat /run/homelab.hosts >/etc/hosts", "name-loopback",
    "name-unresolvable", "family-mixed", "loopback-silent", says=r"\blocalhost\b|::1", on=0)  # fmt: skip

# Oddities: the engine and its client.
loop("a janitor removes each container that does not run, each second", 1, "docker container prune -f",
     "container-missing", says="no such container|removed|prune|vanish|disappear|gone")  # fmt: skip
profile("a seccomp profile against malware: no memfd_create, no ptrace, no io_uring, no perf", "ERRNO", "memfd_create",
        "ptrace", "process_vm_readv", "io_uring_setup", "perf_event_open", "userfaultfd", "keyctl", "bpf")  # fmt: skip
row("the engine is a swarm of one", "docker swarm init --advertise-addr 127.0.0.1",
    "docker swarm leave -f; docker network rm docker_gwbridge")  # fmt: skip
row("the image was made anew here, with a label and a look at its health each second", f"docker tag {_IMAGE} "
    "muster-trainer:kept; at=$(docker create muster-trainer:cpu true); docker commit -c 'LABEL made=here' -c "
    f"'HEALTHCHECK --interval=1s CMD false' $at {_IMAGE}; docker rm $at", "docker ps -aq | xargs -r docker rm -f; "
    f"docker tag muster-trainer:kept {_IMAGE}; docker rmi muster-trainer:kept; docker image prune -f")  # fmt: skip

# Oddities: the user, the shell, SSH.
row("the user is root by another name", "cp /etc/passwd /run/homelab.passwd; sed -i -E "
    f"'s/^(muster:[^:]*):1000:1000:/\\1:0:0:/' /etc/passwd; chown -R 0:0 {HOME}; rm -rf /var/tmp/muster-claims",
    f"cat /run/homelab.passwd >/etc/passwd; chown -R 1000:1000 {HOME}; rm -rf /var/tmp/muster-claims")  # fmt: skip
row("the shell's file says that the home is elsewhere", f"install -d -o muster -g muster -m 700 /srv/scratch; cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'export HOME=/srv/scratch'; cat /run/bashrc) >{HOME}/.bashrc",
    f"cp /run/bashrc {HOME}/.bashrc; rm -rf /srv/scratch")  # fmt: skip
shell("CDPATH and options of tar, gzip and grep are exported", f"export CDPATH={HOME}:/tmp TAR_OPTIONS=--verbose "
      "GZIP=-9 GREP_OPTIONS=--color=always POSIXLY_CORRECT=1 COLUMNS=20")  # fmt: skip
pam("what a login leaves behind is killed when the last login ends", "session optional pam_exec.so type=close_session "
    "/usr/local/bin/logged-out", before="printf '#!/bin/sh\\n[ $(pgrep -c -u muster sshd-session) -gt 1 ] || pkill "
    "-KILL -u muster --ns 1 --nslist pid\\n' >/usr/local/bin/logged-out; chmod 755 /usr/local/bin/logged-out",
    after="rm /usr/local/bin/logged-out")  # fmt: skip
pam("each login waits six seconds for a logind that does not answer", "session optional pam_exec.so /usr/bin/sleep 6",
    "ssh-slow", "ssh-silent", "ssh-timeout")  # fmt: skip

# Oddities: programs, folders, names, the network.
row("the home is a disk of RAM over the real one, as on a live system", "set -e; mkdir -p /mnt/live; mount -t tmpfs "
    "none /mnt/live; mkdir /mnt/live/up /mnt/live/work; mount -t overlay -o lowerdir=/home,upperdir=/mnt/live/up,"
    "workdir=/mnt/live/work none /home", "umount -l /home; umount -l /mnt/live; rmdir /mnt/live")  # fmt: skip
away("there is no tar", "/usr/bin/tar", "command-missing", says=r"\btar\b")
row("programs called json.py, socket.py and random.py lie in the home", "for at in json socket random; do echo 'raise "
    f"SystemExit(\"my homework\")' >{HOME}/$at.py; done", f"rm {HOME}/json.py {HOME}/socket.py {HOME}/random.py",
    "no-python", "probe-died", says=r"(json|socket|random)\.py|my homework|shadow")  # fmt: skip
row("the name server has an answer to every name, always the same", "cp /etc/resolv.conf /run/homelab.resolv; setsid "
    "python3 -c 'import socket\nat = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nat.bind((\"127.0.0.1\", 53))\n"
    "while True:\n    asked, caller = at.recvfrom(999)\n    name = asked[12:asked.index(b\"\\0\", 12) + 5]\n"
    "    four = name[-4:] == bytes((0, 1, 0, 1))\n"
    "    told = bytes((192, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 198, 51, 100, 9)) if four else b\"\"\n"
    "    at.sendto(asked[:2] + bytes((129, 128, 0, 1, 0, four, 0, 0, 0, 0)) + name + told, caller)' "
    f"{_QUIET}; echo nameserver 127.0.0.1 >/etc/resolv.conf",
    f"{_STOP}; cat /run/homelab.resolv >/etc/resolv.conf", "name-foreign", "peer-name-wrong",
    says=r"198\.51\.100\.9")  # fmt: skip
firewall("a NAT has one port for all connections to the peer",
         "nat POSTROUTING -o eth0 -p tcp -d $PEER -j MASQUERADE --to-ports 61000", causes=(*_SILENT, "few-ports"),
         says=r"\b61000\b|\bS?NAT\b|masquerad|few (local )?ports")  # fmt: skip
row("chains of a Kubernetes that is gone: ports of nodes are rejected, marked packets dropped", "set -e; cp "
    "/proc/sys/net/ipv4/ip_forward /run/homelab.forward; for at in KUBE-FIREWALL KUBE-NODEPORTS KUBE-FORWARD "
    "cali-INPUT; do iptables -N $at; done; iptables -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP; iptables -A "
    "KUBE-NODEPORTS -p tcp --dport 30000:32767 -j REJECT; iptables -A cali-INPUT -i cali+ -j DROP; iptables -A "
    "KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP; for at in KUBE-FIREWALL KUBE-NODEPORTS cali-INPUT; do "
    "iptables -I INPUT -j $at; done; iptables -I OUTPUT -j KUBE-FIREWALL; iptables -I FORWARD -j KUBE-FORWARD",
    "for at in KUBE-FIREWALL KUBE-NODEPORTS cali-INPUT; do iptables -D INPUT -j $at; done; iptables -D OUTPUT -j "
    "KUBE-FIREWALL; iptables -D FORWARD -j KUBE-FORWARD; for at in KUBE-FIREWALL KUBE-NODEPORTS KUBE-FORWARD "
    "cali-INPUT; do iptables -F $at; iptables -X $at; done")  # fmt: skip
firewall("the rules of a tutorial: bogus flags, pings, tiny segments, and a new connection a second",
         "filter INPUT -i eth0 -p tcp --syn -j DROP",
         "filter INPUT -i eth0 -p tcp --syn -m limit --limit 1/s --limit-burst 3 -j ACCEPT",
         "filter INPUT -p tcp --syn -m tcpmss ! --mss 536:65535 -j DROP", "filter INPUT -p icmp -j DROP",
         "filter INPUT -p tcp --tcp-flags ALL NONE -j DROP", "filter INPUT -p tcp --tcp-flags SYN,RST SYN,RST -j DROP",
         causes=(*_SILENT, "ssh-timeout"), says=r"\blimit", on=0)  # fmt: skip
_CABLE = "$(ip -4 -o address show eth0 | sed 's/.*inet //; s/[.][0-9]*[/].*//')"
row("Wi-Fi and cable are in one network, and Wi-Fi has the better metric", f"set -e; at={_CABLE}; ip link add link "
    "eth0 name wlan0 type macvlan; ip link set wlan0 up; ip address add $at.77/16 brd + dev wlan0 noprefixroute; ip "
    "route del ${at%.*}.0.0/16 dev eth0; ip route add ${at%.*}.0.0/16 dev wlan0 src $at.77 metric 50; ip route add "
    "${at%.*}.0.0/16 dev eth0 metric 600", f"at={_CABLE}; ip route del ${{at%.*}}.0.0/16 dev eth0 metric 600; ip link "
    "del wlan0; ip route add ${at%.*}.0.0/16 dev eth0 proto kernel scope link src $(ip -4 -o address show eth0 | sed "
    "'s/.*inet //; s/[/].*//')", *_SILENT, "duplicate-address", pair=True, says="wlan0")  # fmt: skip
row("the address is a /32, and all goes by the gateway, as clouds have it", "set -e; at=$(ip -4 -o address show eth0 | "
    "sed 's/.*inet //; s/[/].*//'); via=$(ip route show default | sed 's/.*via //; s/ .*//'); echo $at $via "
    ">/run/homelab.cloud; ip address flush dev eth0; ip address add $at/32 dev eth0; ip route add $via dev eth0 scope "
    "link; ip route add default via $via dev eth0", "read -r at via </run/homelab.cloud; ip address flush dev eth0; ip "
    "address add $at/16 brd + dev eth0; ip route replace default via $via dev eth0", *_SILENT, pair=True)  # fmt: skip
loop("nothing passes for a second of each six, as where Wi-Fi looks for other channels", 5,
     "iptables -I INPUT -i eth0 -j DROP; iptables -I OUTPUT -o eth0 -j DROP; sleep 1; iptables -D INPUT 1; iptables -D "
     "OUTPUT 1", "link-loss", "link-delay", more_mends="iptables -D INPUT -i eth0 -j DROP; iptables -D OUTPUT -o eth0 "
     "-j DROP", pair=True)  # fmt: skip

HOMELAB, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
