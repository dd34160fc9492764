"""An eighth list, of what machines have that were put together from what was left: faults first, then oddities.

Old workstations, nodes of a cloud or a cluster that is gone, boxes of a laboratory, a hobby's GPUs, a router for homes.
It has a seed of its own. Written before anybody tried preflight on a row, by somebody who has not read its rules; what
the other seven lists have is left out. What a run then does decides what is a fault.
"""

from __future__ import annotations

import json
from typing import Any

from lab.unseen.borrowed import remade
from lab.unseen.campus import firewall, login, program
from lab.unseen.homelab import away, loop
from lab.unseen.inherited import wrapper
from lab.unseen.rented import environment
from lab.unseen.row import (
    ANEW,
    ANSWERS,
    ENGINE,
    HOME,
    HUNG_UP,
    IMAGE,
    REJECTED,
    ROWS,
    SAME,
    SILENT,
    engine,
    row,
    server,
    shell,
)
from lab.unseen.sublet import started

SEED = 20261203
_BEGIN = len(ROWS)
_LAYERS = "/var/lib/docker/overlay2/*/diff"
_AT = "/run/salvaged"
# The card's address with its length and the gateway's, in a file that `read -r at via` reads.
_KEEP = ("echo $(ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//') $(ip route show default | sed 's/.*via //; "
         f"s/ .*//') >{_AT}.card; read -r at via <{_AT}.card")  # fmt: skip
_GIVE = (f"read -r at via <{_AT}.card; ip address flush dev eth0; ip address add $at brd + dev eth0; ip route replace "
         "default via $via dev eth0")  # fmt: skip
_TUNED = "net.ipv4.tcp_rmem net.ipv4.tcp_wmem"


def runtime(name: str, change: str, *causes: str, **more: Any) -> None:
    """A row of a runtime of the site's, which changes what a container is made from (`spec`), then calls runc."""
    script = (
        "#!/usr/bin/python3\nimport json, os, sys\n"
        'if "create" in sys.argv and "--bundle" in sys.argv:\n'
        '    at = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"\n'
        f"    spec = json.load(open(at))\n    {change}\n"
        '    with open(at, "w") as file:\n        json.dump(spec, file)\n'
        'os.execvp("runc", ["runc", *sys.argv[1:]])'
    )
    engine(name, {"runtimes": {"site": {"path": "/opt/site"}}, "default-runtime": "site"}, *causes,
           before=f"(cat <<'END'\n{script}\nEND\n) >/opt/site; chmod 755 /opt/site", after="rm /opt/site",
           **more)  # fmt: skip


def program_runs(text: str) -> str:
    """Commands that start a Python program and keep its number."""
    return (f"setsid python3 -c '{text}' </dev/null >/dev/null 2>&1 & echo $! >{_AT}.pid; sleep 1; kill -0 "
            f"$(cat {_AT}.pid)")  # fmt: skip


# Faults: the engine, its client and the image.
started("the disk was XFS and is ext4 now, and daemon.json still limits each container's size",
        '"storage-opts": ["overlay2.size=20G"]', "", "docker-down",
        says=r"overlay2\.size|storage.opt|\bxfs\b|backing")  # fmt: skip
started("daemon.json turns IPv6 on, and the range of addresses for it is gone", '"ipv6": true', "", "docker-down",
        says=r"fixed-cidr|\bIPv6\b|address pool")  # fmt: skip
row("an upgrade made containerd's image store the default: the images are in the old one", ENGINE.replace("{}",
    SAME.replace("false", "true")) + ANSWERS, "docker ps -aq | xargs -r docker rm -f; docker images -q | xargs -r "
    f"docker rmi -f; {ANEW}", "image-missing",
    says=r"no such image|image store|snapshotter|\bimage\b.{0,40}\bnot (there|present|found)")  # fmt: skip
engine("daemon.json gives unlimited locked memory, as guides for fast cards say, and the engine may not",
       {"default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}}, "docker-refused",
       says=r"rlimit|memlock|locked memory")  # fmt: skip
wrapper("docker is the site's script, which runs each container as nobody",
        'case $1 in run|create) verb=$1; shift; n=$#; while [ $n -gt 0 ]; do at=$1; shift; n=$((n - 1)); if [ $skip ]; '
        'then skip=; else case $at in --user=*) ;; --user) skip=1;; *) set -- "$@" "$at";; esac; fi; done; set -- '
        '$verb --user 65534:65534 "$@";; esac\nexec docker.real "$@"', "folder-readonly", "home-readonly",
        "docker-wrapped", "file-permission", "mount-closed", "proof-failed",
        says=r"\bnobody\b|65534|permission denied|may not (read|write)|not writable|another user")  # fmt: skip
_NETLINK = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO",
           "args": [{"index": 0, "value": 16, "op": "SCMP_CMP_EQ"}]}]})  # fmt: skip
engine("a seccomp profile forbids sockets of netlink: nobody sees the cards", {
    "seccomp-profile": "/etc/docker/salvaged.json"}, "interface-missing", "interface-no-address", "proof-failed",
       before=f"echo '{_NETLINK}' >/etc/docker/salvaged.json", after="rm /etc/docker/salvaged.json",
       says=r"netlink|getifaddrs|if_?(name|addr)|seccomp|not permitted|no (card|interface)s?")  # fmt: skip
row("docker's folder was copied without symbolic links: the image has no /lib64", f"for at in {_LAYERS}/lib64; do mv "
    "$at $at.kept; done", f"for at in {_LAYERS}/lib64.kept; do mv $at ${{at%.kept}}; done", "docker-refused",
    "image-without-python", "proof-failed", "image-differs",
    says=r"lib64|\bld-linux|loader|interpreter|(exec|tini|python|/sh)\b.{0,40}no such file")  # fmt: skip
row("docker's folder was copied without the short links of its layers", "mv /var/lib/docker/overlay2/l "
    "/var/lib/docker/l.kept; mkdir -m 700 /var/lib/docker/overlay2/l", "docker ps -aq | xargs -r docker rm -f; rm -rf "
    "/var/lib/docker/overlay2/l; mv /var/lib/docker/l.kept /var/lib/docker/overlay2/l", "docker-refused",
    says=r"overlay2|overlay mount|symlink|\blinks?\b")  # fmt: skip
_DEBUG = ('import sysconfig; open(sysconfig.get_path("purelib") + "/debug.pth", "w").write("import socket; '
          'socket.create_server((\\"127.0.0.1\\", 5678), reuse_port=True).accept()\\n")')  # fmt: skip
remade("somebody looked for an error in the image: each Python in it first waits for a debugger", "docker run --name "
       f"borrowed --user 0 --entrypoint python {IMAGE} -c '{_DEBUG}'", "", "image-differs", "proof-failed",
       "probe-died", "docker-silent",
       says=r"debug(ger|\.pth)|\b5678\b|(python|container|image|probe)\b.*(hang|hung|not (end|finish|answer|start)|"
       r"timed out|said nothing|no answer)")  # fmt: skip
loop("the janitor of a CI kills each container that is three seconds old", 0.5, 'docker ps --format "{{.ID}} '
     '{{.RunningFor}}" | while read -r at n unit rest; do case $unit in second|than) ;; seconds) [ $n -lt 3 ] || '
     "docker kill $at;; *) docker kill $at;; esac; done", "proof-failed", "container-missing", "probe-died",
     says=r"\b137\b|\bkill(ed|s)?\b|SIGKILL|signal 9|janitor")  # fmt: skip

# Faults: SSH and the shell.
away("the list of passwords was left out when the disk was copied: there is no /etc/shadow", "/etc/shadow", "ssh-key",
     "ssh-shell", *HUNG_UP, says=r"\bPAM\b|shadow|closed|hung up|account")  # fmt: skip
server("the list of revoked keys is not there, and without it sshd takes no key", "RevokedKeys /etc/ssh/revoked_keys",
       causes=("ssh-key",), says=r"revoked")  # fmt: skip
login("the login shell is Python", "/usr/bin/python3", "ssh-shell",
      says=r"SyntaxError|NameError|login shell|/usr/bin/python3")  # fmt: skip
shell("the shell's file hands each login on to the new machine, which has been given away",
      'exec ssh -o BatchMode=yes -o ConnectTimeout=5 new.invalid "$BASH_EXECUTION_STRING"', "ssh-shell",
      says=r"new\.invalid|could not resolve hostname|\.bashrc")  # fmt: skip
row("the shell's file sends what cron's jobs say to a log, and takes each command for one of cron's", f"cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'case $- in *i*) ;; *) exec >>~/cron.log 2>&1;; esac'; cat /run/bashrc) "
    f">{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc; rm -f {HOME}/cron.log", "ssh-shell",
    says=r"said nothing|no (answer|output)|nothing (came|was said)|without (a word|output)|\.bashrc|cron")  # fmt: skip

# Faults: the network, names and ports.
row("a shaper was half removed: what comes from the peer is led to a card of the shaper's that is off",
    "set -e; ip link add ifb0 type ifb; tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress protocol ip u32 "
    "match ip src $PEER/32 action mirred egress redirect dev ifb0", "tc qdisc del dev eth0 clsact; ip link del ifb0",
    *SILENT, pair=True, says=r"\btc\b|\bifb0?\b|qdisc|mirred|shaper|ingress")  # fmt: skip
row("a guard against forged addresses lets in no ARP from the peer", "xtables-nft-multi arptables -I INPUT -s $PEER -j "
    "DROP; ip neigh flush dev eth0", "xtables-nft-multi arptables -D INPUT 1; ip neigh flush dev eth0", *SILENT,
    "arp-unanswered", pair=True, says=r"\barp(tables)?\b|neighbou?r|hardware address|\bMAC\b")  # fmt: skip
row("fail2ban has banned the peer, by a route", "ip route add unreachable $PEER/32", "ip route del unreachable "
    "$PEER/32", *SILENT, pair=True, says=r"unreachable|no route|\broute\b|banned|fail2ban")  # fmt: skip
row("the router's portal answers each call to the peer in its place", f"""cat >/opt/portal.py <<'END'
import socketserver
class Portal(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 302 Found\\r\\nLocation: http://login.router/\\r\\n\\r\\n")
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", 8081), Portal).serve_forever()
END
setsid python3 /opt/portal.py </dev/null >/dev/null 2>&1 & echo $! >{_AT}.pid; sleep 1; kill -0 $(cat {_AT}.pid) && """
    "iptables -t nat -I OUTPUT -o eth0 -p tcp -d $PEER ! --dport 22 -j REDIRECT --to-ports 8081",
    f"iptables -t nat -D OUTPUT 1; kill $(cat {_AT}.pid); rm /opt/portal.py", "endpoint-foreign", "connection-cut",
    *SILENT, *REJECTED, pair=True,
    says=r"portal|HTTP|\b302\b|proxy|redirect|(somebody|something|someone) else|not the (peer|host)|"
    r"(wrong|foreign|unexpected|another) (answer|greeting|host|machine)")  # fmt: skip
row("the host's name stands nowhere, and each question about a name waits a minute for a stub that hangs", program_runs(
    "import socket, time\nat = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nat.bind((\"127.0.0.54\", 53))\n"
    "time.sleep(9999)") + f"; cp /etc/hosts {_AT}.hosts; cp /etc/resolv.conf {_AT}.resolv; echo 127.0.0.1 localhost "
    ">/etc/hosts; printf 'nameserver 127.0.0.54\noptions timeout:20 attempts:3\n' >/etc/resolv.conf",
    f"kill $(cat {_AT}.pid); cat {_AT}.hosts >/etc/hosts; cat {_AT}.resolv >/etc/resolv.conf", "name-unresolvable",
    "name-slow", "dns-silent", says=r"\bDNS\b|name ?server|resolv|look.?ups?|127\.0\.0\.54")  # fmt: skip
row("a dead job has taken the rendezvous's port, and does not listen", program_runs(
    "import socket, time\nat = socket.socket()\nfor _ in range(200):\n    try:\n        at.bind((\"\", 29500))\n"
    "        break\n    except OSError:\n        time.sleep(0.3)\ntime.sleep(9999)")
    + "; for n in $(seq 100); do python3 -c 'import socket; socket.socket().bind((\"\", 29500))' 2>/dev/null || break; "
    "sleep 0.2; done", f"kill $(cat {_AT}.pid)", "port-busy", on=0,
    says=r"\b29500\b.*(in use|taken|busy|bound|holds?|used)|(in use|taken|busy|bound|holds?|used).*\b29500\b",
    )  # fmt: skip
row("parental control ends each connection with the peer every second", "export PEER; setsid sh -c 'while sleep 1; do "
    "ss -K -t state established dst $PEER and not \\( sport = :22 or dport = :22 \\); done' </dev/null >/dev/null 2>&1 "
    f"& echo $! >{_AT}.pid", f"pkill -KILL -s $(cat {_AT}.pid)", "connection-cut", pair=True,
    says=r"\breset\b|\bcut\b|abort|broken pipe|connection\b.{0,40}\b(ended|ends|closed|lost)")  # fmt: skip

# Oddities: the engine, its client and the image.
engine("the disk of docker's data is nosuid and nodev", {}, before="mount -o remount,nosuid,nodev /var/lib/docker",
       after="mount -o remount,suid,dev /var/lib/docker")  # fmt: skip
runtime("the site's runtime makes the root of each container read-only", 'spec["root"]["readonly"] = True',
        "folder-readonly", "home-readonly", "proof-failed", "mount-closed",
        says=r"read-only|not writable|may not write")  # fmt: skip
runtime("the site's runtime gives each container a mount, a variable, a hook, a umask and a note",
        'spec["process"]["env"].append("SITE=cellar"); spec["process"]["user"]["umask"] = 0o77; '
        'spec["process"]["oomScoreAdj"] = 500; spec.setdefault("annotations", {})["site"] = "cellar"; '
        'spec["mounts"].append({"destination": "/mnt", "type": "tmpfs", "source": "site"}); '
        'spec.setdefault("hooks", {}).setdefault("poststop", []).append({"path": "/bin/true"})')  # fmt: skip
engine("containers may queue no signals and no messages, and leave no cores", {"default-ulimits": {
    name: {"Name": name, "Hard": 0, "Soft": 0} for name in ("sigpending", "msgqueue", "core", "rtprio", "nice")
    }})  # fmt: skip
row("Docker has no address left for a new network", ENGINE.replace("{}", SAME.replace("{", '{"bip": "172.17.0.1/16", '
    '"default-address-pools": [{"base": "10.99.7.0/28", "size": 28}], ', 1)) + ANSWERS + "; docker network create left",
    f"docker network rm left; {ANEW}", "docker-refused", says=r"address pool|subnet")  # fmt: skip
row("the image was made anew as NVIDIA's are: its entrypoint prints a banner first", f"set -e; docker tag {IMAGE} "
    "muster-trainer:kept; docker run --name salvaged --user 0 --entrypoint sh "
    f"{IMAGE} -c 'printf \"#!/bin/sh\\necho ==== PyTorch ====\\necho WARNING: The NVIDIA Driver was not detected.\\n"
    "exec \\\"\\$@\\\"\\n\" >/opt/entrypoint.sh; chmod 755 /opt/entrypoint.sh'; docker commit -c 'USER muster' -c 'CMD "
    "[]' -c 'EXPOSE 8888 6006' -c 'STOPSIGNAL SIGINT' -c 'VOLUME /workspace' -c \"ENTRYPOINT $(docker image inspect -f "
    f"'{{{{json .Config.Entrypoint}}}}' {IMAGE} | sed 's#^.#[\"/opt/entrypoint.sh\",#')\" salvaged {IMAGE}; docker rm "
    "salvaged", f"docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept {IMAGE}; docker rmi "
    "muster-trainer:kept; docker image prune -f", "image-differs", says=r"entrypoint|banner|PyTorch ====")  # fmt: skip
program("the GPUs were sold, the driver's programs are still there", "/usr/bin/nvidia-smi",
        "#!/bin/sh\necho 'No devices were found'\nexit 6", "gpu-driver", "gpu-lost",
        says=r"no devices|nvidia-smi")  # fmt: skip

# Oddities: the user, the shell, SSH, folders.
shell("programs that are started here ignore hang-ups, broken pipes and requests to end", "trap '' HUP PIPE TERM INT")
shell("what the user makes is the user's only", "umask 077")
row("each login leaves an agent for keys behind, and settings of a terminal that it has not", f"cp {HOME}/.bashrc "
    "/run/bashrc; (echo 'eval \"$(ssh-agent -s)\" >/dev/null; stty -ixon; tput bold; bind \"set bell-style none\"'; "
    f"cat /run/bashrc) >{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc; pkill -x -u muster ssh-agent")  # fmt: skip
shell("a login may lock no memory and no files, and queue no signals and no messages",
      "ulimit -l 0 -x 0 -i 0 -q 0 -c 0")  # fmt: skip
environment("each program tells what the loader did, for an old hunt of slow starts", "true", "LD_DEBUG=statistics",
            "true")  # fmt: skip
server("a sshd for jumps: no terminals, no forwarding, a sign of life each second, no compression", "PermitTTY no",
       "DisableForwarding yes", "ClientAliveInterval 1", "ClientAliveCountMax 30", "Compression no",
       "PrintMotd yes", "VersionAddendum cellar-7")  # fmt: skip
server("what a login starts says that this is an i686, as on a build box it did",
       'ForceCommand exec setarch i686 bash -c "$SSH_ORIGINAL_COMMAND"', causes=("architecture-differs",),
       says=r"\bi[36]86\b|32.?bit")  # fmt: skip
row("no terminal can be had: /dev/pts is empty", "mount -t tmpfs -o mode=755 none /dev/pts", "umount -l /dev/pts",
    "docker-refused", says=r"/dev/pts|ptmx|\bpty\b|terminal")  # fmt: skip
row("the home's path has more slashes and dots than it needs", "cp /etc/passwd /run/passwd; sed -i "
    f"'s#:{HOME}:#:/home/.//muster/:#' /etc/passwd", "cat /run/passwd >/etc/passwd")  # fmt: skip

# Oddities: the network and names.
row("nothing is forwarded: whoever cleaned up after Kubernetes closed Docker's own chain as well",
    "iptables -I DOCKER-USER -j DROP; iptables -P FORWARD DROP",
    "iptables -P FORWARD ACCEPT; iptables -D DOCKER-USER 1")  # fmt: skip
row("fail2ban has banned 1500 addresses, none of them the peer's", "iptables -N f2b-sshd; (echo '*filter'; for n in "
    "$(seq 1500); do echo \"-A f2b-sshd -s 198.18.$((n / 250)).$((n % 250))/32 -j REJECT\"; done; echo COMMIT) | "
    "iptables-restore --noflush; iptables -I INPUT -j f2b-sshd",
    "iptables -D INPUT 1; iptables -F f2b-sshd; iptables -X f2b-sshd")  # fmt: skip
row("the address is on a macvlan over the card, as small servers for files have it", f"set -e; {_KEEP}; ip link add "
    "link eth0 name shim0 type macvlan mode bridge; ip link set shim0 up; ip address del $at dev eth0; ip address add "
    "$at brd + dev shim0; ip route add default via $via dev shim0", f"ip link del shim0; {_GIVE}")  # fmt: skip
row("a balancer's address that floats is the card's first one", f"set -e; {_KEEP}; ip address flush dev eth0; ip "
    "address add $(echo $at | sed 's/[.][0-9]*[.][0-9]*[/].*//').250.9/${at#*/} brd + dev eth0; ip address add $at brd "
    "+ dev eth0; ip route add default via $via dev eth0", _GIVE, "name-foreign", "other-network", "duplicate-address",
    says=r"\.250\.9\b", pair=True)  # fmt: skip
firewall("the router takes sizes, timestamps and selective answers from calls, as one for dial-up did",
         "mangle POSTROUTING -o eth0 -d $PEER -p tcp --tcp-flags SYN SYN -j TCPOPTSTRIP --strip-options "
         "mss,sack-permitted,timestamp", causes=("link-slow",), says=r"\bMSS\b|segment")  # fmt: skip
row("the line of the house: 300 Mbit/s, and 20 ms of what waits", "tc qdisc add dev eth0 root tbf rate 300mbit burst "
    "64kb latency 20ms", "tc qdisc del dev eth0 root; ip link set eth0 txqueuelen 0", "link-slow", "link-loss",
    says=r"slow|[kM]i?B/s|[kM]bit", pair=True)  # fmt: skip
row("the kernel was set up for a box with 32 MB: a connection may have buffers of 16 kB",
    f"sysctl {_TUNED} >{_AT}.conf; sysctl -q -w 'net.ipv4.tcp_rmem=4096 8192 16384' 'net.ipv4.tcp_wmem=4096 8192 "
    "16384'", f"sysctl -q -p {_AT}.conf", "link-slow", says=r"slow|buffer|[kM]i?B/s|[kM]bit", pair=True)  # fmt: skip
row("a clone of the peer: it still has the peer's name", f"uname -n >{_AT}.name; set -- $(getent hosts $PEER); echo $2 "
    ">/proc/sys/kernel/hostname", f"cat {_AT}.name >/proc/sys/kernel/hostname", "name-foreign", "peer-name-wrong",
    "name-shared", "duplicate-name",
    says=r"(host)?names?\b.*(resolves?|leads?|means|is|belongs?)\b.*(\d+\.){3}\d+|(same|peer's) (host)?name|"
    r"both .*(called|named)", pair=True)  # fmt: skip
row("the host's name is as long as a name may be", f"uname -n >{_AT}.name; printf "
    "box-from-the-cellar-that-was-a-node-of-the-old-cluster.example.n1 >/proc/sys/kernel/hostname",
    f"cat {_AT}.name >/proc/sys/kernel/hostname", "name-unresolvable")  # fmt: skip
row("/etc/hosts has forty names that the host once had, in front of the one it has", f"cp /etc/hosts {_AT}.hosts; sed "
    f"\"s/$(uname -n)$/$(seq -f 'OLD-%g.example' -s ' ' 40) &/\" {_AT}.hosts >/etc/hosts; echo \"$PEER head nfs ntp "
    'db" >>/etc/hosts', f"cat {_AT}.hosts >/etc/hosts")  # fmt: skip

SALVAGED, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
