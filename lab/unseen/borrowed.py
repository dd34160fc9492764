"""A sixth list, of what borrowed, shared and half set-up machines have: faults first, then oddities.

It has a seed of its own. Written before anybody tried preflight on a row, by somebody who has not read its rules; what
the other five lists have is left out. Some rows are two things at once, or a degree that is just enough or just too
little to stop a run. What the run then does decides what is a fault.
"""

from __future__ import annotations

from typing import Any

from lab.unseen.campus import firewall, login
from lab.unseen.rented import environment, kernel, parent
from lab.unseen.row import HOME, ROWS, engine, row, server, shell

SEED = 20261125
_BEGIN = len(ROWS)
_IMAGE = "muster-trainer:cpu"
_KEYS = f"{HOME}/.ssh/authorized_keys"
_RUNS = f"{HOME}/.muster/runs"
_MADE = f"install -d -o muster -g muster {HOME}/.muster {_RUNS}"
_SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")
_REJECTED = ("all-ports-rejected", "rendezvous-rejected", "data-ports-rejected")
_LATE = ("ssh-silent", "ssh-timeout", "ssh-lost", "ssh-refused", "ssh-hangup")


def remade(name: str, container: str, changes: str, *causes: str, **more: Any) -> None:
    """A row of another image under the image's name: what makes a container `borrowed`, and what commit changes."""
    row(name, f"set -e; docker tag {_IMAGE} muster-trainer:kept; {container}; docker commit {changes} -c 'USER muster' "
        f"-c 'CMD []' -c \"ENTRYPOINT $(docker image inspect -f '{{{{json .Config.Entrypoint}}}}' {_IMAGE})\" borrowed "
        f"{_IMAGE}; docker rm borrowed", f"docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept "
        f"{_IMAGE}; docker rmi muster-trainer:kept; docker image prune -f", *causes, **more)  # fmt: skip


# Faults: the engine, its client and the image.
engine("the images lay on ZFS, and the new kernel has no module for it", {"storage-driver": "zfs"}, "docker-down",
       says=r"\bzfs\b|storage.driver|graphdriver")  # fmt: skip
environment("users reach the engine through a proxy that lets them look and not touch", """cat >/opt/looks.py <<'END'
import os, socket, threading
at = socket.socket(socket.AF_UNIX)
at.bind("/run/looks.sock")
os.chmod("/run/looks.sock", 0o666)
at.listen(50)
NO = b"<html><body><h1>403 Forbidden</h1>Request forbidden by administrative rules.</body></html>"
def copy(one, other):
    while told := one.recv(65536):
        other.sendall(told)
def meet(one):
    other = socket.socket(socket.AF_UNIX)
    other.connect("/run/docker.sock")
    threading.Thread(target=copy, args=(other, one), daemon=True).start()
    while told := one.recv(65536):
        if told.split(b" ")[0] not in (b"GET", b"HEAD"):
            one.sendall(b"HTTP/1.1 403 Forbidden\\r\\nConnection: close\\r\\nContent-Type: text/html\\r\\n"
                        b"Content-Length: %d\\r\\n\\r\\n%s" % (len(NO), NO))
            return one.shutdown(1)
        other.sendall(told)
while True:
    threading.Thread(target=meet, args=(at.accept()[0],), daemon=True).start()
END
setsid python3 /opt/looks.py </dev/null >/dev/null 2>&1 & echo $! >/run/borrowed.pid; sleep 1""",
            "DOCKER_HOST=unix:///run/looks.sock", "kill $(cat /run/borrowed.pid); rm /run/looks.sock /opt/looks.py",
            "docker-refused", "docker-permission", says=r"forbidden|\b403\b")  # fmt: skip
engine("default-ulimits: a stack of 24 kB", {"default-ulimits": {"stack": {
    "Name": "stack", "Hard": 24576, "Soft": 24576}}},
       says=r"\bstacks? (of|size|limit|is|may)|stack\b.{0,30}(kB|KiB|bytes)|RLIMIT_STACK|ulimit")  # fmt: skip
row("docker's folder for what is being loaded is a disk of 4 kB", "mount -t tmpfs -o size=4k,mode=710 none "
    "/var/lib/docker/tmp", "umount -l /var/lib/docker/tmp", "disk-full", "docker-refused",
    says=r"no space left|/var/lib/docker/tmp")  # fmt: skip

# Faults: who may log in, and what a login gets.
row("the key's line says to log in by another name, as clouds write it for root", f"cp {_KEYS} /run/borrowed.keys; sed "
    "'s/^/command=\"echo Please login as the user ubuntu rather than the user muster.;echo;sleep 10;exit 142\" /' "
    f"/run/borrowed.keys >{_KEYS}", f"cat /run/borrowed.keys >{_KEYS}", "ssh-shell",
    says=r"please log ?in as|forced command|command=")  # fmt: skip
server("the account is for files only", "ForceCommand internal-sftp", causes=("ssh-shell",), says=r"\bsftp\b")
login("a login lands in a container of the provider's, which has no docker", "/usr/local/bin/podsh", "docker-missing",
      "ssh-shell", before=f"docker run -d --name pod --network host --entrypoint sleep {_IMAGE} infinity; printf "
      "'#!/bin/sh\\nshift\\nexec docker exec -i pod bash -c \"$*\"\\n' >/usr/local/bin/podsh; chmod 755 "
      "/usr/local/bin/podsh", after="rm /usr/local/bin/podsh; docker rm -f pod",
      says=r"inside (of )?a container|in a container|podsh")  # fmt: skip
shell("the user's programs may have eight open files", "ulimit -n 8", "open-files", says="open files")
shell("errors go where output goes, and docker warns at each call", "exec 2>&1; export DOCKER_CONFIG=/root/.docker",
      "ssh-shell", says=r"loading config|standard (error|output)|2>&1|warning")  # fmt: skip
environment("PATH of /etc/environment says $PATH, which nobody fills in there", "true",
            "PATH=/usr/local/cuda/bin:$PATH", "true", "docker-missing", "ssh-shell", "command-missing", "no-python",
            says=r"\bPATH\b|not found")  # fmt: skip

# Faults: folders.
row("3 MB for the runs, and a checkpoint has 4", f"{_MADE}; mount -t tmpfs -o size=3m,uid=1000,gid=1000,mode=700 none "
    f"{_RUNS}", f"umount -l {_RUNS}", "disk-full", "disk-quota",
    says=r"no space|[0-9.]+ ?[kM]i?B\b.{0,20}(left|free)|(left|free|has)\b.{0,20}[0-9.]+ ?[kM]i?B\b")  # fmt: skip
row("/var/tmp is full", "mount -t tmpfs -o size=16k,mode=1777 none /var/tmp; cat /dev/zero >/var/tmp/fill || true",
    "umount -l /var/tmp", "disk-full", says=r"/var/tmp|no space left")  # fmt: skip
row("a minimal /dev: no fd, stdin, stdout, stderr", "mkdir /dev/borrowed; mv /dev/fd /dev/stdin /dev/stdout "
    "/dev/stderr /dev/borrowed/", "mv /dev/borrowed/* /dev/; rmdir /dev/borrowed",
    says=r"/dev/(fd|stdin|stdout|stderr)")  # fmt: skip

# Faults: the network.
row("a cloned virtual machine: its card has the hardware address of the peer's", "cat /sys/class/net/eth0/address "
    ">/run/borrowed.mac; nc -z -w 2 $PEER 22 || true; at=$(ip neigh show $PEER | sed -n 's/.*lladdr //; s/ .*//; p'); "
    "ip link set eth0 address $at", "ip link set eth0 address $(cat /run/borrowed.mac)", *_SILENT, *_LATE,
    "duplicate-address", "arp-unanswered", pair=True, says=r"hardware address|\bMAC\b")  # fmt: skip
firewall("what comes from the peer is policed to 50 kB/s",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 -m hashlimit --hashlimit-above 50kb/s --hashlimit-burst "
         "200kb --hashlimit-name borrowed -j DROP", causes=("link-slow", "link-loss"), on=0,
         says=r"slow|[kM]bit|[kM]i?B/s|\bpoli(ce|ced|cing)\b|hashlimit")  # fmt: skip
firewall("calls from the peer are tracked in a zone and answers in none, and answers to no call are dropped",
         "raw PREROUTING -i eth0 -s $PEER -j CT --zone 5", "filter OUTPUT -o eth0 -p tcp ! --sport 22 -m conntrack "
         "--ctstate INVALID -j DROP", on=0, says=r"conntrack|\bzone\b|INVALID|answers?\b")  # fmt: skip
_ROUTER = "$(ip route show default | sed 's/.*via //; s/ .*//')"
kernel("packets may take one hop, and the way to the peer has two", "net.ipv4.ip_default_ttl=1", *_SILENT,
       more_breaks=f"ip route add $PEER/32 via {_ROUTER}", more_mends="ip route del $PEER/32", pair=True,
       says=r"\bTTL\b|\bhops?\b|\brouter\b|time exceeded|gateway")  # fmt: skip

# Oddities: the engine and its client.
_GONE = ("import glob, shutil, sysconfig; at = sysconfig.get_path(\"purelib\"); [shutil.rmtree(each) for each in "
         "glob.glob(at + \"/torch\") + glob.glob(at + \"/torch-*\")]")  # fmt: skip
remade("the name is that of a plain image with Python: torch is not in it", "docker run --name borrowed --user 0 "
       f"--entrypoint python {_IMAGE} -c '{_GONE}'", "", "image-differs",
       says=r"\btorch\b.{0,40}(missing|not (in|there|found|installed))|(no module|without|lacks|missing|has no|import)"
       r"\b.{0,30}\btorch\b")  # fmt: skip
row("systemd-resolved was removed: /etc/resolv.conf is a link to nowhere", "set -e; : >/run/resolv.kept; mount --bind "
    "/etc/resolv.conf /run/resolv.kept; umount /etc/resolv.conf; rm -f /etc/resolv.conf; ln -s "
    "../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf", "rm -f /etc/resolv.conf; : >/etc/resolv.conf; mount "
    "--bind /run/resolv.kept /etc/resolv.conf; umount /run/resolv.kept; rm /run/resolv.kept", "docker-refused",
    says=r"resolv\.conf|stub-resolv")  # fmt: skip
row("docker's settings name helpers for passwords that are not installed", f"mkdir -p {HOME}/.docker; echo "
    "'{\"credsStore\": \"desktop.exe\", \"credHelpers\": {\"gcr.io\": \"gcloud\"}}' "
    f">{HOME}/.docker/config.json", f"rm -r {HOME}/.docker")  # fmt: skip
engine("each container takes seven seconds to begin, as where GPUs fall asleep", {"runtimes": {"slow": {
    "path": "/opt/slow"}}, "default-runtime": "slow"}, before="printf '#!/bin/sh\\ncase \" $* \" in *\" create \"*) "
       "sleep 7;; esac\\nexec runc \"$@\"\\n' >/opt/slow; chmod 755 /opt/slow", after="rm /opt/slow")  # fmt: skip
engine("logs go by UDP to a collector that is gone, and may be lost", {"log-driver": "gelf", "log-opts": {
    "gelf-address": "udp://192.0.2.9:12201", "mode": "non-blocking", "max-buffer-size": "64k"}})  # fmt: skip
parent("all containers may have some dozens of processes and threads", "pids", {"pids.max": "60"}, {"pids.max": "max"},
       "process-limits", says=r"thread|process|fork|temporarily|pids")  # fmt: skip

# Oddities: the user, the shell, SSH, folders.
shell("Python stays to be asked when a program ends, and warnings are errors", "export PYTHONINSPECT=1 "
      "PYTHONWARNINGS=error PYTHONOPTIMIZE=2 PYTHONMALLOC=debug", "no-python", "probe-died",
      says=r"PYTHON(INSPECT|WARNINGS|OPTIMIZE)|interactive")  # fmt: skip
row("the shell's file was edited on Windows", f"cp {HOME}/.bashrc /run/bashrc; sed 's/$/\\r/' /run/bashrc "
    f">{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc")  # fmt: skip
shell("rm, cp and mv ask first, ls and grep are in colours, also where nobody types", "shopt -s expand_aliases; alias "
      "rm='rm -i' cp='cp -i' mv='mv -i' ls='ls -la --color=always' grep='grep -n --color=always'")  # fmt: skip
row("first in PATH are a docker that may not be executed and a python3 that leads nowhere", f"mkdir {HOME}/bin; echo "
    f"exit 3 >{HOME}/bin/docker; ln -s /opt/conda/bin/python3 {HOME}/bin/python3; chown -R muster {HOME}/bin; cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'export PATH=$HOME/bin:$PATH'; cat /run/bashrc) >{HOME}/.bashrc",
    f"cp /run/bashrc {HOME}/.bashrc; rm -r {HOME}/bin")  # fmt: skip
server("each command of a login is ended after two seconds", "ForceCommand exec timeout 2 bash -c "
       "\"$SSH_ORIGINAL_COMMAND\"", causes=_LATE, says=r"ForceCommand|time limit|\btimeout\b|after \S+ s(econds)?\b|"
       r"ended|\b124\b")  # fmt: skip
server("each command of a login is made nice", 'ForceCommand exec nice -n 15 bash -c "$SSH_ORIGINAL_COMMAND"')
row("/tmp is a link to a scratch disk that is not there", "mv /tmp /tmp.kept; ln -s /scratch/tmp /tmp",
    "rm /tmp; mv /tmp.kept /tmp", "folder-readonly", says=r"/tmp\b|temporary (folder|director)")  # fmt: skip
row("twenty thousand old runs lie there", f"{_MADE}; cd {_RUNS}; for at in $(seq -w 20000); do echo "
    "2025-03-11-$at-digits; done | xargs mkdir; chown -R muster:muster .", f"find {_RUNS} -mindepth 1 -maxdepth 1 "
    "-name '2025-03-11-*' -delete")  # fmt: skip

# Oddities: the network.
firewall("every second call from the peer is refused, as by a balancer with a dead machine",
         "filter INPUT -i eth0 -s $PEER -p tcp --syn ! --dport 22 -m statistic --mode nth --every 2 --packet 0 -j "
         "REJECT --reject-with tcp-reset", causes=(*_REJECTED, "connections-limited", "connection-cut"), on=0,
         says=r"every (second|other)|\bhalf\b|[0-9]+ of [0-9]+|some (of|calls|connections)|refused")  # fmt: skip
firewall("each packet to the peer goes twice, as a listening port of a switch has it",
         "mangle POSTROUTING -o eth0 -d $PEER -j TEE --gateway $PEER", causes=())  # fmt: skip
row("the way to the peer goes by the router, though the peer is in the same network", "ip route add $PEER/32 "
    f"via {_ROUTER}", "ip route del $PEER/32", pair=True)  # fmt: skip

BORROWED, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
