"""A tenth list, of what machines in long use have, and what is met in the first hour on one: faults, then oddities.

Login nodes that want a job first, guests of Windows without their engine, homes outside of /home, keys that were
pasted, folders that a careless copy or `chmod -R` went over, mounts whose other end died. It has a seed of its own.
Written before anybody tried preflight on a row, by somebody who has not read its rules; what the other nine lists have
is left out. What a run then does decides what is a fault.
"""

from __future__ import annotations

from lab.unseen.campus import firewall, login
from lab.unseen.homelab import pam
from lab.unseen.rented import environment
from lab.unseen.row import (
    AGAIN,
    ANEW,
    ENGINE,
    HOME,
    HUNG_UP,
    IMAGE,
    MADE,
    ROWS,
    RUNS,
    SAME,
    SILENT,
    SSHD,
    row,
    shell,
)

SEED = 20261217
_BEGIN = len(ROWS)
_AT = "/run/timeworn"
_KEYS = f"{HOME}/.ssh/authorized_keys"
# The card's address with its length, and the gateway's, which is the machine that calls by SSH.
_OWN = "$(ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//')"
_HEAD = "$(ip route show default | sed 's/.*via //; s/ .*//')"
_HANGS = r"hang|hung|timed out|not (answer|end|finish|start)|no answer|said nothing|silent|stuck|wait"
_DEVICES = "/sys/fs/cgroup/devices/devices"
# A mount by FUSE whose program has died: each look at it ends with ENOTCONN.
_DIED = ("import ctypes, os, sys; at = os.open(\"/dev/fuse\", os.O_RDWR); sys.exit(ctypes.CDLL(None).mount("
         "sys.argv[1].encode(), sys.argv[2].encode(), b\"fuse\", 0, b\"fd=%d,rootmode=40000,user_id=1000,group_id=1000,"
         "allow_other\" % at))")  # fmt: skip


def docker_is(script: str) -> tuple[str, str]:
    """Commands that put a script in docker's place, which is docker.real then, and that take it away."""
    return (f"mv /usr/bin/docker /usr/bin/docker.real; (cat <<'END'\n#!/bin/sh\n{script}\nEND\n) >/usr/bin/docker; "
            "chmod 755 /usr/bin/docker", "mv /usr/bin/docker.real /usr/bin/docker")  # fmt: skip


def died(source: str, folder: str) -> tuple[str, str]:
    """Commands that mount what has died over a folder, and that take it away."""
    return (f"echo 'c 10:229 rwm' >{_DEVICES}.allow; mknod /dev/fuse c 10 229; python3 -c '{_DIED}' {source} {folder}; "
            "rm /dev/fuse", f"umount -l {folder}; echo 'c 10:229 rwm' >{_DEVICES}.deny")  # fmt: skip


# Faults: who may log in, and what a login gets.
pam("a login node of Slurm: who has no job there may not log in", "account required pam_exec.so quiet stdout "
    "/usr/local/bin/adopt", "ssh-key", "ssh-shell", *HUNG_UP, before="printf '#!/bin/sh\\necho Access denied by "
    "pam_slurm_adopt: you have no active jobs on this node\\nexit 1\\n' >/usr/local/bin/adopt; chmod 755 "
    "/usr/local/bin/adopt", after="rm /usr/local/bin/adopt",
    says=r"slurm|active jobs|access denied|\bPAM\b|closed|hung up")  # fmt: skip
login("the account is a service's: its login shell is nologin", "/usr/sbin/nologin", "ssh-key", "ssh-shell",
      says=r"not available|nologin|login shell")  # fmt: skip
row("the key was pasted from a window that broke its line", f"cp {_KEYS} {_AT}.keys; sed -E "
    f"'s/^(ssh-[^ ]+ .{{40}})/\\1\\n/' {_AT}.keys >{_KEYS}", f"cat {_AT}.keys >{_KEYS}", "ssh-key",
    says=r"authorized_keys|\bkeys?\b.*(refuse|reject|not (take|accept|know))|publickey")  # fmt: skip
row("the directory of users is down, and the host does not know the user", f"cp /etc/passwd {_AT}.passwd; sed "
    f"'/^muster:/d' {_AT}.passwd >/etc/passwd", f"cat {_AT}.passwd >/etc/passwd", "ssh-key",
    says=r"(no|unknown|invalid) (such )?user|publickey|account|not know")  # fmt: skip
row("each login is told to a chat by a webhook, and the chat does not answer", "printf 'exec sleep 1979\\n' "
    ">/etc/ssh/sshrc", "rm /etc/ssh/sshrc; pkill -fx 'sleep 1979'", "ssh-shell", "ssh-silent", "ssh-timeout",
    says=rf"sshrc|{_HANGS}")  # fmt: skip
_THREADS = "sed 's/.*OMP_NUM_THREADS=//; s/[^0-9].*//'"
row("somebody opened all of /etc to all: sshd takes none of its keys and has not come up again", "ps -o args= -p "
    f"$(pgrep -o -x sshd) | {_THREADS} >{_AT}.threads; chmod -R go+rwX /etc/ssh; {AGAIN}", "chmod -R go-w /etc/ssh; "
    "chmod 600 /etc/ssh/ssh_host_*_key; pgrep -x sshd || setsid env -u AUTHORIZED_KEY /usr/sbin/sshd -D -e -o "
    f"SetEnv=OMP_NUM_THREADS=$(cat {_AT}.threads) </dev/null >/dev/null 2>&1 & sleep 1", "ssh-refused",
    says=r"refused|nobody listens|nothing listens|not listen")  # fmt: skip
row("a program at the laptop's address called without logging in, and sshd takes no call from there for a while",
    f"printf 'PerSourcePenalties noauth:600 authfail:600 min:1\\n' >{SSHD}; {AGAIN}; iptables -t nat -I POSTROUTING "
    f"-o lo -p tcp --dport 22 -j SNAT --to-source {_HEAD}; at={_OWN}; (echo; sleep 0.3) | nc -w 2 ${{at%/*}} 22; "
    "iptables -t nat -D POSTROUTING 1; sleep 1", f"rm {SSHD}; {AGAIN}", *HUNG_UP,
    says=r"penalt|not allowed at this time|closed|reset|hung up")  # fmt: skip
shell("the variables of each shell take two megabytes, as modules leave them: no program can be started",
      'for n in {1..20}; do export "_MODULES_$n=$(printf %0120000d 0)"; done', "ssh-shell",
      says=r"argument list too long|E2BIG|too long|environment|variables")  # fmt: skip
row("a guard against leaks of data cuts each connection of SSH after 15 kB", "iptables -I INPUT -i eth0 -p tcp --dport "
    "22 -m connbytes --connbytes 15000: --connbytes-dir both --connbytes-mode bytes -j REJECT --reject-with tcp-reset",
    "iptables -D INPUT 1", "connection-cut", *HUNG_UP,
    says=r"\bcut\b|reset|closed|lost|broken|hung up|\d ?kB")  # fmt: skip

# Faults: the engine, its client, its folder.
_BREAKS, _MENDS = docker_is("cat <<'TEXT'\n\nThe command 'docker' could not be found in this WSL 2 distro.\nWe "
                            "recommend to activate the WSL integration in Docker Desktop settings.\n\nFor details "
                            "about using Docker Desktop with WSL 2, visit:\n\nhttps://docs.docker.com/go/wsl2/\n\n"
                            "TEXT\nexit 1")  # fmt: skip
row("a guest of Windows, and Docker Desktop does not serve it", _BREAKS, _MENDS, "docker-missing", "docker-refused",
    "docker-down", says=r"\bWSL|docker desktop|could not be found")  # fmt: skip
_BREAKS, _MENDS = docker_is("case $HOME in /home/*) exec docker.real \"$@\";; esac\necho 'Sorry, home directories "
                            "outside of /home needs configuration.\nSee https://forum.snapcraft.io/t/11209 for "
                            "details.' >&2\nexit 1")  # fmt: skip
row("docker is a snap, and the home is not below /home", f"{_BREAKS}; mkdir /srv/homes; cp -a {HOME} /srv/homes/; cp "
    f"/etc/passwd {_AT}.passwd; sed 's#:{HOME}:#:/srv/homes/muster:#' {_AT}.passwd >/etc/passwd", f"{_MENDS}; cat "
    f"{_AT}.passwd >/etc/passwd; rm -rf /srv/homes", "docker-refused", "docker-missing",
    says=r"snap|home director|outside of /home")  # fmt: skip
row("docker lies in /opt, and only a shell of a terminal has that in its PATH", "mkdir -p /opt/docker/bin; mv "
    f"/usr/bin/docker /opt/docker/bin/; cp {HOME}/.bashrc {_AT}.bashrc; echo 'export PATH=$PATH:/opt/docker/bin' "
    f">>{HOME}/.bashrc", f"mv /opt/docker/bin/docker /usr/bin/; rm -r /opt/docker; cat {_AT}.bashrc >{HOME}/.bashrc",
    "docker-missing", says=r"not (found|installed|there)|\bPATH\b|no docker|/opt/docker")  # fmt: skip
row("a script that was to mend the cgroups has mounted an empty folder over them", "mount -t tmpfs none /sys/fs/cgroup",
    "umount -l /sys/fs/cgroup", "docker-refused", "docker-down", says=r"cgroup")  # fmt: skip
_POD = SAME.replace("{", '{"data-root": "/srv/docker", "storage-driver": "overlay2", ', 1)
row("the host is a rented container: docker's folder lies on an overlay, which carries no other", "mkdir /srv/docker; "
    f"{ENGINE.replace('{}', _POD)}sleep 4", f"pkill -KILL -x dockerd; sleep 0.5; {ANEW}; rm -rf /srv/docker",
    "docker-down", says=r"overlay|storage.driver|graphdriver|driver not supported|upperdir")  # fmt: skip
row("docker's folder was moved by rsync -C, which leaves out what is called *.so", "find /var/lib/docker/overlay2 "
    f"-path '*/diff/*' -type f -name '*.so' >{_AT}.so; perl -ne 'chomp; rename $_, \"$_.kept\"' {_AT}.so", "perl -ne "
    f"'chomp; rename \"$_.kept\", $_' {_AT}.so", "image-without-python", "proof-failed", "image-differs", "probe-died",
    says=r"no module named|ImportError|shared object|\.so\b|\btorch\b|import")  # fmt: skip

# Faults: folders and the network.
_BREAKS, _MENDS = died("storage:/scratch", RUNS)
row("the folder of the runs is a mount by sshfs whose other end died", f"{MADE}; {_BREAKS}", _MENDS, "home-readonly",
    "folder-readonly", says=r"endpoint|ENOTCONN|not connected|sshfs|fuse")  # fmt: skip
row("somebody flushed the rules of routing, and with them the one that reads the table", "ip rule flush", "ip rule add "
    "pref 32766 lookup main; ip rule add pref 32767 lookup default", *SILENT, "ssh-timeout", "ssh-silent",
    says=r"timed out|unreach|not reach|no answer|not answer|no route|\brout")  # fmt: skip
firewall("a guard against floods drops from the peer what carries an acknowledgement and nothing else",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 --tcp-flags ALL ACK -m length --length 40:72 -j DROP",
         causes=(*SILENT, "link-slow", "link-delay", "connection-cut", "mtu-blackhole"),
         says=r"\bACKs?\b|acknowledg|stall|slow|nothing (comes|came|arrive)|[kM]i?B/s|silent")  # fmt: skip

# Oddities: the engine and what it has.
row("the engine is not started until somebody calls it, as by systemd's docker.socket", """cat >/opt/called.py <<'END'
import os, select, shutil, socket
at = socket.socket(socket.AF_UNIX)
at.bind("/run/docker.sock")
os.chmod("/run/docker.sock", 0o660)
shutil.chown("/run/docker.sock", "root", "docker")
at.listen(50)
select.select([at], [], [])
os.dup2(at.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execvp("dockerd", ["dockerd", "-H", "fd://"])
END
pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done; rm -f /run/docker.sock; """
    f"setsid python3 /opt/called.py </dev/null >/run/dockerd.log 2>&1 & echo $! >{_AT}.pid; sleep 1; kill -0 "
    f"$(cat {_AT}.pid)", f"pgrep -x dockerd || kill $(cat {_AT}.pid); {ANEW}; rm /opt/called.py")  # fmt: skip
row("forty containers of others that were made and never started, their volumes and networks", "for n in $(seq 40); do "
    f"docker create --name Job_$n.old-run --label owner=somebody{{{{else}}}} -v vol$n:/data {IMAGE} false; done "
    ">/dev/null; for n in 1 2 3; do docker network create --label 'made=by hand' net$n; done", "docker ps -aq | xargs "
    "-r docker rm -f; docker volume ls -q | grep ^vol | xargs -r docker volume rm; docker network rm net1 net2 net3",
    )  # fmt: skip
row("somebody's container is stuck: its shim stands still, and nobody can stop it", f"docker run -d --name stuck "
    f"--entrypoint sleep {IMAGE} 99999; pkill -STOP -x containerd-shim", "pkill -CONT -x containerd-shim; docker rm -f "
    "stuck")  # fmt: skip

# Oddities: the user, the shell, folders.
shell("dotfiles in git, and a merge of them stopped halfway",
      "<<<<<<< HEAD\nexport EDITOR=vim\n=======\nexport EDITOR=nano\n>>>>>>> laptop")  # fmt: skip
shell("each shell goes to the marketplace's workspace, and has two seconds for whoever types",
      "cd /srv; TMOUT=2; readonly TMOUT; export TMOUT")  # fmt: skip
environment("sizes in gigabytes, columns of one's own, and POSIX to the letter", "true",
            "BLOCK_SIZE=human-readable\nDF_BLOCK_SIZE=G\nDU_BLOCK_SIZE=G\nLS_BLOCK_SIZE=G\nTIME_STYLE=+%s\n"
            "QUOTING_STYLE=c\nPS_FORMAT=pid,args\nCOLUMNS=20\nLINES=5\nPOSIXLY_CORRECT=1", "true")  # fmt: skip
row("/home is a link to a disk of data", "mkdir /data; mv /home /data/home; ln -s /data/home /home",
    "rm /home; mv /data/home /home; rmdir /data")  # fmt: skip
_BREAKS, _MENDS = died("gdrive:", f"{HOME}/gdrive")
row("rclone died, and its mount lies in the home: df and ls complain", f"mkdir {HOME}/gdrive; {_BREAKS}",
    f"{_MENDS}; rmdir {HOME}/gdrive")  # fmt: skip
row("three hundred mounts, as snaps and pods leave them, with spaces in their names", "for n in $(seq 300); do mkdir "
    "-p \"/snap/an app $n\"; mount --bind /opt \"/snap/an app $n\"; done", "for n in $(seq 300); do umount -l \"/snap/"
    "an app $n\"; rmdir \"/snap/an app $n\"; done; rmdir /snap")  # fmt: skip

# Oddities: the network.
row("kube-proxy is gone, and its card still has the host's own address", f"at={_OWN}; ip link add kube-ipvs0 type "
    "bridge; ip address add ${at%/*}/32 dev kube-ipvs0", "ip link del kube-ipvs0", "duplicate-address",
    says=r"kube-ipvs0")  # fmt: skip
firewall("what leaves for the peer may take one hop, as providers have it against sharing",
         "mangle POSTROUTING -o eth0 -d $PEER -j TTL --ttl-set 1", causes=())  # fmt: skip
row("the lease's preferred time is over: the address counts as deprecated", f"ip address change {_OWN} dev eth0 "
    "valid_lft 86400 preferred_lft 0", f"ip address change {_OWN} dev eth0 valid_lft forever preferred_lft "
    "forever")  # fmt: skip

TIMEWORN, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
