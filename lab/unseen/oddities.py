"""The rows that were expected to do no harm. What the run then does decides, not the expectation."""

from __future__ import annotations

from lab.unseen.row import CONTAINERD, HOME, engine, row, server, shell

_RUNS = f"{HOME}/.muster/runs"

engine("the engine leaves the firewall alone", {"iptables": False})
engine("no bridge at all", {"bridge": "none"})
engine("live-restore, init and no new privileges", {"live-restore": True, "init": True, "no-new-privileges": True})
engine("a proxy of the engine's", {"http-proxy": "http://192.0.2.1:3128", "no-proxy": "localhost"})
engine("name servers that never answer", {"dns": ["192.0.2.1"]})
engine("logs that rotate at 1 kB", {"log-opts": {"max-size": "1k", "max-file": "2"}})
engine("64 kB of shared memory by default", {"default-shm-size": "65536"})
engine("one core for all containers", {"cgroup-parent": "/small"}, before="mkdir -p /sys/fs/cgroup/cpuset/small; "
       "cat /sys/fs/cgroup/cpuset/cpuset.mems >/sys/fs/cgroup/cpuset/small/cpuset.mems; "
       "echo 1 >/sys/fs/cgroup/cpuset/small/cpuset.cpus")  # fmt: skip
row("containers inherit no core dumps and no locked memory", f"prlimit --pid {CONTAINERD} --core=0 --memlock=0",
    f"prlimit --pid {CONTAINERD} --core=unlimited --memlock=65536")  # fmt: skip
row("containers inherit stacks of 1 MB", f"prlimit --pid {CONTAINERD} --stack=1048576",
    f"prlimit --pid {CONTAINERD} --stack=8388608:unlimited")  # fmt: skip
row("/dev/shm of the host is tiny and noexec", "mount -t tmpfs -o noexec,size=4k none /dev/shm", "umount /dev/shm")
row("/tmp of the host is full", "mount -t tmpfs -o size=4k,mode=1777 none /tmp; cat /dev/zero >/tmp/fill || true",
    "umount /tmp")  # fmt: skip
row("the folder of the runs is a disk of its own, noexec",
    f"mount -t tmpfs -o noexec,nosuid,nodev,noatime,uid=1000,gid=1000,mode=700 none {_RUNS}",
    f"umount {_RUNS}")  # fmt: skip
row("~/.muster is a link to another disk", f"mv {HOME}/.muster /srv/muster; ln -s /srv/muster {HOME}/.muster",
    f"rm {HOME}/.muster; mv /srv/muster {HOME}/.muster")  # fmt: skip
shell("the shell stops at errors, and DOCKER_HOST is empty", "set -e; export DOCKER_HOST=")
shell("another language and time zone", "export LANG=xx_XX LC_ALL=de_DE.UTF-8 TZ=Asia/Kathmandu")
shell("a preload that is missing", "export LD_PRELOAD=/usr/lib/gone.so")
shell("a Python of one's own", "export PYTHONHOME=/opt/gone PYTHONPATH=/opt/gone PYTHONSTARTUP=/opt/gone.py")
shell("proxies and a temporary folder that is missing", "export http_proxy=http://192.0.2.1:1 "
      "https_proxy=http://192.0.2.1:1 ALL_PROXY=socks5://192.0.2.1:1 TMPDIR=/mnt/gone")  # fmt: skip
shell("variables of a run in the shell", "export GLOO_SOCKET_IFNAME=lo MASTER_ADDR=192.0.2.1 RANK=7 WORLD_SIZE=64")
shell("binary noise on standard error", "head -c 3000 /dev/urandom >&2")
shell("20 open files for the user's programs", "ulimit -n 20")
row("docker prints a notice on standard error", "mv /usr/bin/docker /usr/bin/docker.real; printf '#!/bin/sh\\necho "
    "Emulate Docker CLI using podman. >&2\\nexec docker.real \"$@\"\\n' >/usr/bin/docker; chmod 755 /usr/bin/docker",
    "mv /usr/bin/docker.real /usr/bin/docker")  # fmt: skip
row("docker's own settings: formats, headers and proxies", f"mkdir -p {HOME}/.docker; echo "
    "'{\"psFormat\": \"table {{.Names}}\", \"imagesFormat\": \"table {{.ID}}\", \"HttpHeaders\": {\"X-A\": \"b\"}, "
    "\"proxies\": {\"default\": {\"httpProxy\": \"http://192.0.2.1:1\"}}}' "
    f">{HOME}/.docker/config.json", f"rm -r {HOME}/.docker")  # fmt: skip
row("sudo asks for a password", "mv /etc/sudoers.d/muster /run/sudoers", "mv /run/sudoers /etc/sudoers.d/muster")
server("new keys every 16 kB", "RekeyLimit 16K")
server(
    "one cipher, and silent clients are dropped",
    "Ciphers chacha20-poly1305@openssh.com",
    "ClientAliveInterval 5",
    says="no method in common",
)
server("one attempt, and five seconds for it", "MaxAuthTries 1", "LoginGraceTime 5")
row("the login prints by ~/.ssh/rc", f"echo 'echo hello from rc' >{HOME}/.ssh/rc", f"rm {HOME}/.ssh/rc")
row("the key may do little", f"sed -i 's/^/restrict /' {HOME}/.ssh/authorized_keys",
    f"sed -i 's/^restrict //' {HOME}/.ssh/authorized_keys")  # fmt: skip
row("a queue of one for those who call", "sysctl -w net.core.somaxconn=1", "sysctl -w net.core.somaxconn=4096")
row("no IPv6 here", "sysctl -w net.ipv6.conf.all.disable_ipv6=1", "sysctl -w net.ipv6.conf.all.disable_ipv6=0")
row("small packets on the way to the peer", "ip route add $PEER dev eth0 mtu lock 552", "ip route del $PEER")
row("what leaves is masqueraded", "iptables -t nat -I POSTROUTING -o eth0 -j MASQUERADE",
    "iptables -t nat -D POSTROUTING 1")  # fmt: skip
row("local ports around the rendezvous's", "sysctl -w net.ipv4.ip_local_port_range='29000 30000'",
    "sysctl -w net.ipv4.ip_local_port_range='32768 60999'", on=0)  # fmt: skip
row("hosts' names by a service that is missing", "cp /etc/nsswitch.conf /run/nss; sed -i 's/^hosts:.*/hosts: gone "
    "files/' /etc/nsswitch.conf; echo garbage >>/etc/resolv.conf",
    "cat /run/nss >/etc/nsswitch.conf; sed '/garbage/d' /etc/resolv.conf >/run/r; "
    "cat /run/r >/etc/resolv.conf")  # fmt: skip
