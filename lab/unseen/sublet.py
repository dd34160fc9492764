"""A seventh list, of what sublet, handed-on and half configured machines have: faults first, then oddities.

It has a seed of its own. Written before anybody tried preflight on a row, by somebody who has not read its rules; what
the other six lists have is left out. Many rows are taken from what people report: a router that loses SSH's packets of
one class, a variable for debugging on one host only, a limit without its name. What a run then does decides what is a
fault.
"""

from __future__ import annotations

from typing import Any

from lab.unseen.borrowed import remade
from lab.unseen.campus import firewall
from lab.unseen.inherited import wrapper
from lab.unseen.rented import environment, kernel
from lab.unseen.row import (
    AGAIN,
    ANEW,
    ANSWERS,
    ENGINE,
    HOME,
    HUNG_UP,
    IMAGE,
    MADE,
    REJECTED,
    ROWS,
    RUNS,
    SAME,
    SILENT,
    SSHD,
    engine,
    row,
    server,
    shell,
)

SEED = 20261128
_BEGIN = len(ROWS)
_LAYERS = "/var/lib/docker/overlay2/*/diff"
_SOME = r"\bhalf\b|\b[0-9]+ of [0-9]+|some (of|calls|connections)"


def service(name: str, before: str, *causes: str, **more: Any) -> None:
    """A row of an engine whose service has mounts of its own: what is done in them before it starts."""
    row(name, ENGINE.replace("{}", SAME).replace("setsid dockerd", f"setsid unshare -m sh -c '{before}; exec dockerd'")
        + ANSWERS, ANEW, *causes, **more)  # fmt: skip


def started(name: str, settings: str, options: str, *causes: str, **more: Any) -> None:
    """A row of an engine that does not come up with these settings and options."""
    told = SAME.replace("{", "{" + settings + ", ", 1)
    row(name, ENGINE.replace("{}", told).replace("setsid dockerd", f"setsid dockerd {options}") + "sleep 4",
        f"pkill -KILL -x dockerd; sleep 0.5; {ANEW}", *causes, **more)  # fmt: skip


# Faults: the engine, its client and the image.
started("daemon.json says where the engine listens, and so does the service's command line",
        '"hosts": ["unix:///var/run/docker.sock"]', "-H unix:///var/run/docker.sock", "docker-down",
        says=r"specified both|as a flag|\bhosts\b|daemon\.json|configuration file|command line")  # fmt: skip
started("containerd is a service of its own, and nobody has started it",
        '"containerd": "/run/containerd/containerd.sock"', "", "docker-down", "docker-silent",
        says=r"containerd")  # fmt: skip
service("the engine's service is hardened: ProtectHome=read-only", "mount --bind /home /home; mount -o "
        "remount,bind,ro /home", "mount-closed", "mount-missing", "home-readonly", "folder-readonly",
        says=r"read-only|ProtectHome|may not write|not writable")  # fmt: skip
service("the engine's service is hardened: PrivateTmp=yes", "for at in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 "
        "none $at; done", "mount-missing", "mount-closed",
        says=r"/tmp\b|PrivateTmp|does not see|namespace")  # fmt: skip
wrapper("docker is the site's script, which takes the host's network from whoever asks for it",
        "n=$#; while [ $n -gt 0 ]; do at=$1; shift; n=$((n - 1)); if [ $skip ]; then skip=; else case $at in "
        '--net=host|--network=host) ;; --net|--network) skip=1;; *) set -- "$@" "$at";; esac; fi; done\n'
        'exec docker.real "$@"', "bridge-network", "docker-wrapped", "interface-missing", "interface-no-address",
        "other-network", "container-bridge", "endpoint-foreign",
        says=r"network of (its|their) own|bridge|namespace|172\.17\.|script|wrapper")  # fmt: skip
wrapper("docker's client is of 2016, the engine is not",
        "case $1 in container|image|system|context|builder|buildx|plugin|manifest) echo \"docker: $1 is not a docker "
        "command.\" >&2; exit 1;; esac; for at; do case $at in --mount|--mount=*|--gpus|--gpus=*|--pull=*|--cgroupns=*)"
        " echo \"unknown flag: ${at%%=*}\" >&2; exit 125;; esac; done\nexec docker.real \"$@\"",
        "docker-refused", "docker-wrapped", "docker-missing",
        says=r"unknown flag|not a docker command|--mount|\bold(er)?\b")  # fmt: skip
wrapper("docker is the site's script, which gives each container its variables: TORCH_DISTRIBUTED_DEBUG is DETAIL",
        'case $1 in run|create) verb=$1; shift; set -- $verb --env TORCH_DISTRIBUTED_DEBUG=DETAIL "$@";; esac\n'
        'exec docker.real "$@"', "settings-differ", "docker-wrapped",
        says=r"TORCH_DISTRIBUTED_DEBUG|\bDETAIL\b")  # fmt: skip

# Faults: SSH and the shell.
row("/run was cleaned by hand: sshd's empty folder is gone", "mv /run/sshd /run/sshd.kept",
    "rm -rf /run/sshd; mv /run/sshd.kept /run/sshd", *HUNG_UP,
    says=r"/run/sshd|privilege separation|closed|reset|hung up")  # fmt: skip
firewall("a router loses packets of class CS1, which sshd gives to sessions without a terminal",
         "mangle OUTPUT -o eth0 -p tcp --sport 22 -m dscp --dscp-class CS1 -j DROP", causes=("ssh-silent",
         "ssh-timeout", "ssh-lost"), pair=False, says=r"\bDSCP\b|IPQoS|\bTOS\b|\bQoS\b|\bCS1\b")  # fmt: skip
shell("the shell's file calls newgrp docker, and that shell reads what is meant for the first", "newgrp docker",
      "ssh-shell", says=r"newgrp|standard input|\bstdin\b|\.bashrc")  # fmt: skip
shell("each shell becomes a session of tmux, and tmux is gone", '[ -n "$TMUX" ] || exec tmux new-session -A -s main',
      "ssh-shell", "command-missing", says=r"\btmux\b")  # fmt: skip
row("the user is in no group docker, and docker is a function that calls sudo", f"gpasswd -d muster docker; cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'docker() {{ sudo docker \"$@\"; }}; export -f docker'; cat /run/bashrc) "
    f">{HOME}/.bashrc", f"cp /run/bashrc {HOME}/.bashrc; gpasswd -a muster docker",
    "docker-permission", "docker-wrapped", says=r"permission denied|group|\bsudo\b")  # fmt: skip
row("a login is handed on to the group's account, by sudo", "set -e; useradd -m -s /bin/bash -G docker trainer; printf "
    "'ForceCommand exec sudo -n -i -u trainer bash -c \"$SSH_ORIGINAL_COMMAND\"\\n' "
    f">{SSHD}; {AGAIN}", f"rm {SSHD}; {AGAIN}; pkill -KILL -u trainer; userdel -f -r trainer; rm -rf "
    "/var/tmp/muster-claims", "ssh-shell", says=r"\bsudo\b|ForceCommand|no output|standard input")  # fmt: skip

# Faults: the network.
row("a firewall in the tables of the old iptables, which the new one does not list", "iptables-legacy -I INPUT -i eth0 "
    "-s $PEER -p tcp --dport 1024:65535 -j DROP", "iptables-legacy -D INPUT 1", *SILENT, pair=True, on=0,
    says=r"legacy")  # fmt: skip
firewall("a firewall answers that this host has no TCP", "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 -j REJECT "
         "--reject-with icmp-proto-unreachable", causes=(*REJECTED, "no-route", "host-unreachable"), on=0,
         says=r"protocol (is )?(not available|unreachable)|ENOPROTOOPT|\bICMP\b|reject|prohibit")  # fmt: skip
firewall("the firewall lets in who calls from IANA's ephemeral ports, and Linux begins below them",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 --sport 1024:49151 --syn -j DROP", on=0,
         causes=(*SILENT, "link-loss"), says=rf"(source|local|caller's) ports?|ephemeral|{_SOME}")  # fmt: skip

# Oddities: the engine, its client and the image.
engine("daemon.json is a guide's: another log driver, a mirror that is gone, SELinux, generic resources", {
    "metrics-addr": "127.0.0.1:9323", "registry-mirrors": ["https://mirror.example.invalid"], "labels": ["row=3"],
    "insecure-registries": ["registry.lab:5000"], "max-concurrent-downloads": 1, "log-driver": "local",
    "log-opts": {"max-size": "20k", "max-file": "2"}, "default-cgroupns-mode": "host", "selinux-enabled": True,
    "node-generic-resources": ["gpu=GPU-1"], "experimental": True, "seccomp-profile": "unconfined"})  # fmt: skip
engine("default-ulimits: the limit of open files has no Name", {"default-ulimits": {
    "nofile": {"Hard": 10000, "Soft": 10000}}}, "docker-refused", says=r"rlimit|ulimit")  # fmt: skip
engine("an authorization plugin thinks about each call for a while, and allows it", {
    "authorization-plugins": ["sublet"]}, before="""mkdir -p /run/docker/plugins; cat >/opt/sublet.py <<'END'
import http.server, json, socketserver, time
class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        time.sleep(0.4)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"Implements": ["authz"], "Allow": True}).encode())
    def log_message(self, *words):
        pass
class Door(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Door("/run/docker/plugins/sublet.sock", Judge).serve_forever()
END
setsid python3 /opt/sublet.py </dev/null >/dev/null 2>&1 & echo $! >/run/sublet.pid; sleep 1""",
       after="kill $(cat /run/sublet.pid); rm /opt/sublet.py /run/docker/plugins/sublet.sock")  # fmt: skip
row("somebody deleted docker0 and emptied Docker's chains", "ip link del docker0; iptables -F FORWARD; iptables -t "
    "nat -F DOCKER", ANEW)  # fmt: skip
row("a backup without modes was put back over docker's folder: in images only root may write to /tmp",
    f"chmod 755 {_LAYERS}/tmp", f"chmod 1777 {_LAYERS}/tmp", "folder-readonly",
    says=r"/tmp\b|temporary (folder|director)")  # fmt: skip
row("a check of the disk took the lists of users and groups from the image", f"for at in {_LAYERS}/etc/passwd "
    f"{_LAYERS}/etc/group; do mv $at $at.kept; done", f"for at in {_LAYERS}/etc/passwd.kept {_LAYERS}/etc/group.kept; "
    "do mv $at ${at%.kept}; done", "docker-refused",
    says=r"passwd|find user|no matching entr|\bno (such )?user")  # fmt: skip
environment("Go's settings are those of a hunt for leaks: each program tells what it does", "true",
            "GODEBUG=inittrace=1,gctrace=1\nGOGC=5\nGOMAXPROCS=1\nGOTRACEBACK=crash\nGOMEMLIMIT=1MiB",
            "true")  # fmt: skip
remade("the image has variables of a former project: a preload, a rank, a temporary folder", "docker create --name "
       f"borrowed {IMAGE}", "-c 'ENV MASTER_ADDR=localhost MASTER_PORT=12355 RANK=0 WORLD_SIZE=1 LOCAL_RANK=0' -c "
       "'ENV LD_PRELOAD=/usr/lib/libtcmalloc.so.4 TMPDIR=/scratch/tmp OMP_NUM_THREADS=auto CUDA_VISIBLE_DEVICES=-1 "
       "NCCL_SOCKET_IFNAME=ib0 NCCL_DEBUG=INFO'")  # fmt: skip

# Oddities: the user, the shell, SSH, folders.
row("a security product was removed, and each program misses its library", "echo /opt/sentinel/libagent.so "
    ">/etc/ld.so.preload", "rm /etc/ld.so.preload")  # fmt: skip
shell("words end at commas, patterns that match nothing are errors, echo reads backslashes",
      "IFS=,; shopt -s failglob xpg_echo nocaseglob nocasematch; set -o pipefail")  # fmt: skip
server("sshd as FIPS has it: NIST's curves, AES and ECDSA only", "Ciphers aes256-gcm@openssh.com,aes128-ctr",
       "MACs hmac-sha2-256", "KexAlgorithms ecdh-sha2-nistp256", "HostKeyAlgorithms ecdsa-sha2-nistp256")  # fmt: skip
server("a connection may have two sessions at once", "MaxSessions 2", causes=("ssh-sessions",),
       says=r"MaxSessions|(second|third) (session|channel)|(session|channel)s?\b.*(refused|denied|open|at once)",
       )  # fmt: skip
row("PAM's limits by the book, and one login at a time", "printf 'muster %s\\n' '- maxlogins 1' 'hard core 0' "
    "'- priority 10' 'hard memlock 64' 'hard nproc 4000' 'hard fsize 4000000' 'hard nofile 1024' 'hard stack 8192' "
    ">/etc/security/limits.d/90-sublet.conf", "rm /etc/security/limits.d/90-sublet.conf")  # fmt: skip
row("the user's group is called domain users, and there are sixty more", "set -e; cp /etc/group /run/sublet.group; sed "
    "-i 's/^muster:x:1000:/domain users:x:1000:/' /etc/group; for n in $(seq 60); do echo "
    "\"project $n:x:$((5000 + n)):muster\"; done >>/etc/group", "cat /run/sublet.group >/etc/group")  # fmt: skip
row("homes are called as the directory has people: Doe, Jane", "ln -s muster '/home/Doe, Jane'; cp /etc/passwd "
    f"/run/passwd; sed -i 's#:{HOME}:#:/home/Doe, Jane:#' /etc/passwd",
    "cat /run/passwd >/etc/passwd; rm '/home/Doe, Jane'", "docker-refused", "mount-missing",
    says=r"comma|Doe|invalid (argument|mount|field|spec)")  # fmt: skip
row("a minimal system: neither setsid, nohup, timeout, flock nor mktemp", "mkdir /opt/away; for each in setsid nohup "
    "timeout flock mktemp; do at=$(command -v $each); mv $at /opt/away/$each; echo mv /opt/away/$each $at; done "
    ">/run/sublet.back", "sh /run/sublet.back; rmdir /opt/away", "command-missing",
    says=r"\b(setsid|nohup|timeout|flock|mktemp)\b")  # fmt: skip
row("root may make nothing where the runs are, as with NFS and root_squash", f"set -e; {MADE}; mkdir -p /srv/nfs; "
    "mount -t tmpfs -o uid=1000,gid=1000,mode=700 none /srv/nfs; mount --bind -o "
    f"'X-mount.idmap=u:1000:1000:1 g:1000:1000:1' /srv/nfs {RUNS}", f"umount -l {RUNS}; umount -l /srv/nfs; rmdir "
    "/srv/nfs", "folder-readonly", "home-readonly", "mount-missing", "docker-refused", "file-permission",
    says=r"\broot\b|overflow|too large for defined|permission denied|squash")  # fmt: skip
row("home, /tmp and /var/tmp are noexec, nosuid and nodev, by a guide", "set -e; for at in /home /tmp /var/tmp; do "
    "mount --bind $at $at; mount -o remount,bind,noexec,nosuid,nodev $at; done",
    "for at in /home /tmp /var/tmp; do umount -l $at; done")  # fmt: skip
row("the folder of the runs is root's, open to all, sticky, and hands on its group", f"{MADE}; mv {RUNS} "
    f"{RUNS}.kept; install -d -o root -g games -m 3777 {RUNS}",
    f"rm -rf {RUNS}; mv {RUNS}.kept {RUNS}")  # fmt: skip

# Oddities: the network and names.
kernel("what listens on :: takes no IPv4", "net.ipv6.bindv6only=1", *REJECTED, "family-mixed", "endpoint-nobody", on=0,
       pair=True, says=r"bindv6only|v6.?only|IPv6.only|only (by|on|over)? ?IPv6")  # fmt: skip
row("the host is called by its place in the row, 0017, which is also a way to write an address", "uname -n "
    ">/run/sublet.name; echo 0017 >/proc/sys/kernel/hostname", "cat /run/sublet.name >/proc/sys/kernel/hostname",
    "name-foreign", "name-unresolvable", says=r"0\.0\.0\.1[57]|\b0017\b")  # fmt: skip
row("a VPN has all private networks, and the host's own is more special", "set -e; ip tuntap add dev tun0 mode tun; ip "
    "address add 10.8.0.6/24 dev tun0; ip link set tun0 up; for at in 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16; do ip "
    "route add $at dev tun0; done", "ip link del tun0", "address-overlap", "other-network")  # fmt: skip
kernel("left of a balancer: thirty addresses of services on the loopback, and few answers about addresses",
       "net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.lo.arp_ignore=1",
       more_breaks="for n in $(seq 30); do ip address add 198.51.100.$n/32 dev lo; done",
       more_mends="for n in $(seq 30); do ip address del 198.51.100.$n/32 dev lo; done")  # fmt: skip
row("the card is set to large packets, the switch and the peer are not", "ip link set eth0 mtu 9000",
    "ip link set eth0 mtu 1500", "mtu-differs", pair=True)  # fmt: skip
kernel("the kernel was tuned by a forum's list", "net.ipv4.tcp_window_scaling=0 net.ipv4.tcp_sack=0 "
       "net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_tw_reuse=1 net.ipv4.tcp_fin_timeout=5 "
       "net.ipv4.tcp_max_syn_backlog=16 net.ipv4.tcp_abort_on_overflow=1 net.ipv4.tcp_mtu_probing=2 "
       "net.ipv4.tcp_base_mss=512 net.ipv4.tcp_notsent_lowat=4096 kernel.shmall=0 kernel.shmmni=0 "
       "kernel.msgmni=0")  # fmt: skip
firewall("the ends of the peer's connections never come: FIN and RST are lost",
         "filter INPUT -i eth0 -s $PEER -p tcp --tcp-flags RST RST -j DROP",
         "filter INPUT -i eth0 -s $PEER -p tcp --tcp-flags FIN FIN -m length --length 40:60 -j DROP",
         causes=("connection-cut",), says=r"\bFIN\b|\bRST\b|never (end|close)")  # fmt: skip
firewall("a guard against floods loses every second first packet of a call: who calls again is let in",
         "filter INPUT -i eth0 -s $PEER -p tcp --syn ! --dport 22 -m statistic --mode nth --every 2 --packet 0 -j DROP",
         causes=("link-loss", "link-delay"), on=0, says=_SOME)  # fmt: skip
row("only IANA's ephemeral ports may call out, and the kernel was told so", "set -e; echo 49152 65535 "
    ">/proc/sys/net/ipv4/ip_local_port_range; iptables -I OUTPUT -o eth0 -d $PEER -p tcp --syn --sport 1024:49151 -j "
    "DROP", "iptables -D OUTPUT 1; echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range", pair=True)  # fmt: skip

SUBLET, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
