"""The rows that were expected to keep a run from training. What the run then does decides, not the expectation."""

from __future__ import annotations

from lab.unseen.row import ANSWERS, CONTAINERD, ENGINE, HOME, SAME, SSHD, engine, row, server, shell

_DOCKER = "/var/lib/docker"
_KEYS = f"{HOME}/.ssh/authorized_keys"
_AWAY = f"mv {HOME}/.muster /run/muster-kept"
_BACK = f"rm -rf {HOME}/.muster; mv /run/muster-kept {HOME}/.muster"

# The engine and what lies under it.
row("docker's data root is read-only", f"mount --bind {_DOCKER} {_DOCKER}; mount -o remount,bind,ro {_DOCKER}/",
    f"umount {_DOCKER}", "docker-refused", says="read-only")  # fmt: skip
row("docker's data root has no inodes left", f"mount -t tmpfs -o nr_inodes=1 none {_DOCKER}/containers",
    f"umount {_DOCKER}/containers", "disk-full", "inodes-full", says="no space left|inode")  # fmt: skip
engine("docker's data root is noexec", {}, "docker-refused", before=f"mount -o remount,noexec {_DOCKER}",
       after=f"mount -o remount,exec {_DOCKER}", says="permission denied|noexec")  # fmt: skip
engine("the default runtime is missing", {"runtimes": {"gone": {"path": "/opt/gone"}}, "default-runtime": "gone"},
       "docker-refused", says="/opt/gone")  # fmt: skip
engine("default-ulimits: 24 open files", {"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 24, "Soft": 24}}},
       "open-files", says="open files")  # fmt: skip
engine("default-ulimits: 10 processes", {"default-ulimits": {"nproc": {"Name": "nproc", "Hard": 10, "Soft": 10}}},
       "process-limits", says="thread|process|fork|temporarily")  # fmt: skip
engine("the log driver is journald, without a journal", {"log-driver": "journald"}, "docker-refused", says="journal")
engine("the log driver is none", {"log-driver": "none"}, "docker-refused", says="log")
engine("the log driver is syslog, at nobody", {"log-driver": "syslog", "log-opts": {
    "syslog-address": "tcp://127.0.0.1:1"}}, "docker-refused", says="logging|syslog|127.0.0.1:1")  # fmt: skip
engine("an authorization plugin is missing", {"authorization-plugins": ["gone"]}, "docker-refused", "docker-down",
       says="plugin")  # fmt: skip
engine("systemd keeps the cgroups, and is not there", {"exec-opts": ["native.cgroupdriver=systemd"]},
       "docker-refused", "docker-down", says="systemd")  # fmt: skip
engine("userns-remap", {"userns-remap": "default"}, "docker-refused", says="user namespace|userns")
for _call, _says in (("fsync", "not permitted"), ("clone3", "thread|fork|not permitted"), ("setsockopt", "not perm")):
    _profile = f'{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":["{_call}"],"action":"SCMP_ACT_ERRNO"}}]}}'
    engine(f"a seccomp profile forbids {_call}", {"seccomp-profile": "/etc/docker/profile.json"}, "proof-failed",
           before=f"echo '{_profile}' >/etc/docker/profile.json", says=_says)  # fmt: skip
for _kind, _file, _value, _cause, _says in (
    ("memory", "memory.limit_in_bytes", "150000000", "memory-low", "memory|137"),
    ("pids", "pids.max", "12", "process-limits", "thread|process|fork|temporarily"),
):
    _group = f"/sys/fs/cgroup/{_kind}/small"
    engine(f"the engine's parent cgroup has a low {_file}", {"cgroup-parent": "/small"}, _cause, says=_says,
           before=f"mkdir -p {_group}; echo {_value} >{_group}/{_file}")  # fmt: skip
for _name, _option, _says in (
    ("files of at most 200 kB", "fsize=200000", "too large|153|XFSZ|file size"),
    ("an address space of 1.2 GB", "as=1200000000", "memory|allocat"),
):
    row(f"containers inherit from containerd {_name}", f"prlimit --pid {CONTAINERD} --{_option}",
        f"{ENGINE.replace('{}', SAME)}{ANSWERS}", "proof-failed", "docker-refused", says=_says)  # fmt: skip

# The home and its folder.
row("the home belongs to root", f"{_AWAY}; chown root:root {HOME}; chmod 755 {HOME}",
    f"chown muster:muster {HOME}; chmod 700 {HOME}; {_BACK}", "home-readonly", "folder-readonly",
    says="permission denied|may not write|not writable")  # fmt: skip
row("~/.muster is a file", f"{_AWAY}; touch {HOME}/.muster; chown muster {HOME}/.muster", _BACK,
    says=r"exists|not a (directory|folder)|is a file")  # fmt: skip
row("~/.muster is a link to nowhere", f"{_AWAY}; ln -s /mnt/gone {HOME}/.muster", _BACK,
    says=r"exists|no such file|link|/mnt/gone")  # fmt: skip
row("~/.muster/runs belongs to root", f"mv {HOME}/.muster/runs /run/runs; mkdir -m 755 {HOME}/.muster/runs",
    f"rm -rf {HOME}/.muster/runs; mv /run/runs {HOME}/.muster/runs", "home-readonly", "folder-readonly",
    says="permission denied|may not write|not writable")  # fmt: skip

# The user's shell and settings.
shell("the shell's umask is 0777", "umask 0777", "home-readonly", "folder-readonly", says="permission denied|umask")
shell("DOCKER_HOST leads to nobody", "export DOCKER_HOST=tcp://127.0.0.1:1", "docker-down", says="127.0.0.1:1")
shell("PATH has no programs", "export PATH=/usr/local/gone", "docker-missing", says="not found|PATH")
shell("the user may have 12 processes", "ulimit -u 12", "process-limits", says="thread|process|fork|temporarily")
shell("the user's programs may take 200 MB", "ulimit -v 200000", "memory-low", says="memory|allocat|reserve")
row("docker's context is a missing one", f"mkdir -p {HOME}/.docker; echo '{{\"currentContext\": \"far\"}}' "
    f">{HOME}/.docker/config.json", f"rm -r {HOME}/.docker", "docker-refused", "docker-down",
    says="context")  # fmt: skip
row("docker is a script that greets on standard output", "mv /usr/bin/docker /usr/bin/docker.real; printf "
    "'#!/bin/sh\\necho Welcome to the cluster.\\nexec docker.real \"$@\"\\n' >/usr/bin/docker; chmod 755 "
    "/usr/bin/docker", "mv /usr/bin/docker.real /usr/bin/docker", "podman-command",
    says="welcome|prints|output")  # fmt: skip
row("/dev/null is closed to users", "chmod 600 /dev/null", "chmod 666 /dev/null", says="/dev/null")
row("/dev/null is a folder", "mv /dev/null /dev/null.kept; mkdir /dev/null", "rmdir /dev/null; mv /dev/null.kept "
    "/dev/null", says="/dev/null|hung up before login")  # fmt: skip

# Who may log in.
row("the account has expired", "chage -E 1 muster", "chage -E -1 muster", "ssh-key", "ssh-shell", says="expired")
row("the password must be changed first", "chage -d 0 muster", "chage -d 20000 muster", "ssh-shell",
    says="password")  # fmt: skip
row("the host is about to go down", "echo The node is drained for maintenance. >/etc/nologin", "rm /etc/nologin",
    "ssh-key", "ssh-shell", "ssh-lost", says="drained|nologin|maintenance")  # fmt: skip
row("the key is for other addresses", f"cp {_KEYS} /run/keys; sed -i 's/^/from=\"192.0.2.9\" /' {_KEYS}",
    f"cat /run/keys >{_KEYS}", "ssh-key")  # fmt: skip
server("only others may log in", "AllowUsers somebody", causes=("ssh-key",))
server("the server wants a password too", "AuthenticationMethods publickey,password", causes=("ssh-key",))
server("the server knows only an old key exchange", "KexAlgorithms diffie-hellman-group1-sha1",
       says="key exchange|kex")  # fmt: skip
server("the server takes signatures of another kind", "PubkeyAcceptedAlgorithms rsa-sha2-512", causes=("ssh-key",))
row("the keys' file may be written by all", f"chmod 777 {HOME} {HOME}/.ssh; chmod 666 {_KEYS}",
    f"chmod 700 {HOME} {HOME}/.ssh; chmod 600 {_KEYS}", "ssh-key")  # fmt: skip
row("the user's shell runs no commands", f"printf 'ForceCommand /bin/false\\n' >{SSHD}; pkill -HUP -o -x sshd; "
    "sleep 1", f"rm {SSHD}; pkill -HUP -o -x sshd; sleep 1", "ssh-shell",
    says="said nothing|exit|no answer")  # fmt: skip

# The network, past what lab/drawn composes.
_SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")
row("packets of the user's own processes are dropped",
    "iptables -I OUTPUT -o eth0 -p tcp -m owner --uid-owner 1000 --syn -j DROP", "iptables -D OUTPUT 1",
    *_SILENT, pair=True)  # fmt: skip
row("packets of the user's own processes are rejected",
    "iptables -I OUTPUT -o eth0 -p tcp -m owner --uid-owner 1000 --syn -j REJECT", "iptables -D OUTPUT 1",
    "all-ports-rejected", "rendezvous-rejected", "data-ports-rejected", *_SILENT, pair=True)  # fmt: skip
row("a rule of routing leads the user's packets nowhere",
    "ip rule add uidrange 1000-1000 lookup 99; ip route add blackhole 172.16.0.0/12 table 99",
    "ip rule del uidrange 1000-1000 lookup 99; ip route flush table 99", *_SILENT, pair=True)  # fmt: skip
row("a stray IPsec policy wants packets to the peer encrypted",
    "ip xfrm policy add dst $PEER/32 dir out tmpl dst $PEER proto esp mode tunnel",
    "ip xfrm policy flush", *_SILENT, "arp-unanswered", pair=True)  # fmt: skip
row("a policy blocks packets from the peer", "ip xfrm policy add src $PEER/32 dir in action block",
    "ip xfrm policy flush", *_SILENT, "arp-unanswered", pair=True)  # fmt: skip
row("outgoing calls are led to a proxy on the host",
    "iptables -t nat -I OUTPUT -o eth0 -p tcp -m owner --uid-owner 1000 -j REDIRECT --to-ports 3128",
    "iptables -t nat -D OUTPUT 1", "all-ports-rejected", "rendezvous-rejected", "endpoint-foreign",
    "endpoint-nobody", says="refused|redirect|proxy", pair=True)  # fmt: skip
row("of each peer two connections at a time are let in", "iptables -I INPUT -i eth0 -p tcp --syn --dport 1024:65535 "
    "-m connlimit --connlimit-above 2 -j DROP", "iptables -D INPUT 1", *_SILENT, on=0, pair=True)  # fmt: skip
row("somebody listens on the port, on the loopback only", "setsid nc -lk 127.0.0.1 29500 >/dev/null 2>&1 & sleep 1",
    "pkill -x nc", "port-busy", on=0)  # fmt: skip
