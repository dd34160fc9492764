"""A third list, of what university and small-lab machines have: faults first, then oddities. It has a seed of its own.

Written before anybody tried preflight on a row, by somebody who has not read its rules; what the other two lists and
lab/drawn have is left out. Some rows are two small things at once. What the run then does decides what is a fault.
"""

from __future__ import annotations

from typing import Any

from lab.unseen.row import AGAIN, ANSWERS, ENGINE, HOME, ROWS, SAME, SSHD, engine, row, server, shell

SEED = 20261125
_BEGIN = len(ROWS)
_IMAGE = "muster-trainer:cpu"
_RUNS = f"{HOME}/.muster/runs"
_MADE = f"install -d -o muster -g muster {HOME}/.muster {_RUNS}"
_ANEW = ENGINE.replace("{}", SAME) + ANSWERS
_OWN = "$(ip -4 -o address show eth0 | sed 's/.*inet //; s/[/ ].*//')"
_SILENT = ("all-ports-dropped", "rendezvous-dropped", "data-ports-dropped", "one-way", "no-route", "host-unreachable")


def program(name: str, path: str, text: str, *causes: str, more_mends: str = "", **more: Any) -> None:
    """A row of a script that lies on the host under that path."""
    mends = f"rm -f {path}" + f"; {more_mends}" * bool(more_mends)
    row(name, f"(cat <<'END'\n{text}\nEND\n) >{path}; chmod 755 {path}", mends, *causes, **more)


def login(name: str, path: str, *causes: str, before: str = "true", after: str = "true", **more: Any) -> None:
    """A row of another login shell."""
    row(name, f"{before}; sed -i '/^muster:/s#:[^:]*$#:{path}#' /etc/passwd",
        f"sed -i '/^muster:/s#:[^:]*$#:/bin/bash#' /etc/passwd; {after}", *causes, **more)  # fmt: skip


def firewall(name: str, *rules: str, causes: tuple[str, ...] = _SILENT, before: str = "", after: str = "",
             **more: Any) -> None:  # fmt: skip
    """A row of rules: `TABLE CHAIN what it matches`, each put before those that are there, the last one on top."""
    words = [rule.split(" ", 2) for rule in rules]
    breaks = [f"iptables -t {table} -I {chain} {match}" for table, chain, match in words]
    mends = [f"iptables -t {table} -D {chain} 1" for table, chain, _ in reversed(words)]
    row(name, "; ".join(["set -e", *[before] * bool(before), *breaks]),
        "; ".join([*mends, *[after] * bool(after)]), *causes, **{"pair": True, **more})  # fmt: skip


# Faults: the engine and what lies under it.
row("the package of docker's init is not installed", "mv $(command -v docker-init) /run/campus.init",
    "mv /run/campus.init /usr/bin/docker-init", "docker-refused", says="docker-init")  # fmt: skip
row("/run, where containerd keeps its state, is full",
    "mount -o remount,size=6m /run; cat /dev/zero >/run/fill || true",
    "rm /run/fill; mount -o remount,size=50% /run", "disk-full", says="no space left|/run (is|has) ")  # fmt: skip
row("dockerd may open hardly more files than it has open", "at=$(pgrep -x dockerd); most=$(ls /proc/$at/fd | sort -n | "
    "tail -n 1); prlimit --pid $at --nofile=$((most + 4)):$((most + 4))", _ANEW, "open-files", "docker-silent",
    "docker-refused", says="too many open files|open files")  # fmt: skip
row("containerd stands still, dockerd does not", "kill -STOP $(pgrep -x containerd)",
    "kill -CONT $(pgrep -x containerd); sleep 5", "docker-silent",
    says=r"containerd|(container|docker|engine)\b.*(hang|hung|not (end|finish|start|answer)|timed out)")  # fmt: skip
row("a folder lies where the engine's socket belongs", "pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep "
    f"0.1; done; rm -rf /run/docker.sock; mkdir /run/docker.sock; {ENGINE.replace('{}', SAME)}sleep 4",
    f"rmdir /run/docker.sock; {_ANEW}", "docker-down",
    says=r"docker\.sock\b.*(directory|folder)|(directory|folder)\b.*docker\.sock|not a socket")  # fmt: skip
engine("a plugin of the engine's forbids the host's network", {"authorization-plugins": ["campus"]}, "docker-refused",
       before="""mkdir -p /run/docker/plugins; cat >/opt/campus.py <<'END'
import base64, http.server, json, socketserver
class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        bad = b'"NetworkMode":"host"' in base64.b64decode(asked.get("RequestBody") or "")
        said = {"Implements": ["authz"], "Allow": not bad, "Msg": "the network of this host is not for students"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())
    def log_message(self, *words):
        pass
class Door(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Door("/run/docker/plugins/campus.sock", Judge).serve_forever()
END
setsid python3 /opt/campus.py </dev/null >/dev/null 2>&1 & echo $! >/run/campus.pid; sleep 1""",
       after="kill $(cat /run/campus.pid); rm /opt/campus.py /run/docker/plugins/campus.sock",
       says="not for students|plugin|authorization")  # fmt: skip
row("the engine has a network of its own, as a rootless one has",
    ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid unshare -n sh -c 'ip link set lo up; exec dockerd'")
    + ANSWERS, _ANEW, "interface-missing", "interface-no-address", "other-network", "no-route", "proof-failed",
    says=r"rootless|namespace|(host|engine|container)('s|s)? (own )?network|network is unreach|\beth0\b")  # fmt: skip
row("docker is for administrators: other users may not execute it", "chmod 750 /usr/bin/docker",
    "chmod 755 /usr/bin/docker", "docker-permission", "docker-missing",
    says="permission denied|not executable|may not (run|execute|start)")  # fmt: skip
row("a power cut emptied one of torch's libraries in the image", "set -e; find /var/lib/docker/overlay2 -path "
    "'*/diff/*' -name libtorch_python.so >/run/campus.lost; at=$(cat /run/campus.lost); mv $at $at.kept; : >$at",
    "at=$(cat /run/campus.lost); mv $at.kept $at", "proof-failed", "image-without-python",
    says=r"libtorch|too short|import.*torch|torch\b.*(import|load|damaged|broken)")  # fmt: skip
row("the image was built under a umask of 077", f"set -e; docker tag {_IMAGE} muster-trainer:kept; docker run --name "
    f"campus --user 0 --entrypoint chmod {_IMAGE} -R go= /muster; docker commit -c 'USER muster' -c 'CMD []' -c "
    f"\"ENTRYPOINT $(docker image inspect -f '{{{{json .Config.Entrypoint}}}}' {_IMAGE})\" campus {_IMAGE}; docker rm "
    "campus", f"docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept {_IMAGE}; docker rmi "
    "muster-trainer:kept; docker image prune -f", "image-differs", "proof-failed",
    says="permission denied|may not (be )?read|not readable")  # fmt: skip

# Faults: who may log in, and what a login may do.
row("users' files may have a kilobyte, say PAM's limits",
    "echo 'muster hard fsize 1' >/etc/security/limits.d/90-a.conf", "rm /etc/security/limits.d/90-a.conf", "disk-quota",
    says="file size|too large|XFSZ|153|fsize")  # fmt: skip
_SLICE = "/sys/fs/cgroup/pids/campus"
row("the slice of the users may have nine tasks", f"set -e; mkdir -p {_SLICE}; echo 9 >{_SLICE}/pids.max; "
    f"echo $(pgrep -o -x sshd) >{_SLICE}/cgroup.procs", f"echo max >{_SLICE}/pids.max; for at in $(cat "
    f"{_SLICE}/cgroup.procs); do echo $at >/sys/fs/cgroup/pids/cgroup.procs; done; sleep 1; rmdir {_SLICE}",
    "process-limits", says="thread|process|fork|temporarily|pids")  # fmt: skip
row("the home was not mounted, and the keys come from elsewhere", f"set -e; cp {HOME}/.ssh/authorized_keys "
    f"/etc/ssh/campus; chmod 644 /etc/ssh/campus; printf 'AuthorizedKeysFile /etc/ssh/campus\\n' >{SSHD}; {AGAIN}; mv "
    f"{HOME} {HOME}.kept", f"rm -rf {HOME}; mv {HOME}.kept {HOME}; rm /etc/ssh/campus {SSHD}; {AGAIN}",
    "home-readonly", "folder-readonly",
    says=r"\bhome\b.{0,60}(missing|not there|not exist|no such|gone)|no such file|chdir")  # fmt: skip
login("the login shell is zsh, and zsh is not installed", "/bin/zsh", "ssh-key", "ssh-shell", says="zsh")
login("the login shell is a script that loses quotes", "/usr/local/bin/labsh", "ssh-shell",
      before="printf '#!/bin/sh\\nexec /bin/bash $*\\n' >/usr/local/bin/labsh; chmod 755 /usr/local/bin/labsh",
      after="rm /usr/local/bin/labsh", says=r"labsh|login shell|quot(e|es|ing)\b")  # fmt: skip
row("the login is locked into a folder without programs", f"mkdir -p /srv/jail; printf 'ChrootDirectory /srv/jail\\n' "
    f">{SSHD}; {AGAIN}", f"rm {SSHD}; rmdir /srv/jail; {AGAIN}", "ssh-shell",
    says="/bin/bash|chroot|no such file|said nothing")  # fmt: skip
server("a connection may have one session", "MaxSessions 1", causes=("ssh-sessions",),
       says=r"MaxSessions|second (session|channel)|(session|channel)s?\b.*(refused|denied|open|at once)")  # fmt: skip
row("the host was set up anew, its host keys as well", "mkdir /etc/ssh/campus; mv /etc/ssh/ssh_host_* "
    f"/etc/ssh/campus/; ssh-keygen -A; {AGAIN}", "rm /etc/ssh/ssh_host_*; mv /etc/ssh/campus/ssh_host_* /etc/ssh/; "
    f"rmdir /etc/ssh/campus; {AGAIN}", "ssh-host-key-changed", says="host key|known_hosts")  # fmt: skip
row("the large packets of an SSH connection vanish", "iptables -I OUTPUT -o eth0 -p tcp --sport 22 -m length --length "
    "1000:65535 -j DROP", "iptables -D OUTPUT 1", "ssh-silent", "ssh-timeout", "ssh-lost", "mtu-blackhole",
    says=r"\bMTU\b|large packets")  # fmt: skip
row("root's umask left /etc/passwd closed to users", "chmod 600 /etc/passwd", "chmod 644 /etc/passwd",
    says=r"passwd|no name|cannot find name|unknown (uid|user)|who it is")  # fmt: skip
row("/etc/hosts.deny lets nobody use sshd", "cp /etc/hosts.deny /run/campus.deny; echo 'sshd: ALL' >>/etc/hosts.deny",
    "cat /run/campus.deny >/etc/hosts.deny", "ssh-refused", "ssh-lost", "ssh-silent", "ssh-hangup",
    says=r"hosts\.deny|hung up|closed")  # fmt: skip

# Faults: folders, and programs that a host has.
# chattr +i, which a minimal Debian has not.
_FLAGS = ("python3 -c 'import fcntl, os, struct; "
          f"fcntl.ioctl(os.open(\"{_RUNS}\", 0), 0x40086602, struct.pack(\"l\", FLAG))'")  # fmt: skip
row("the folder of the runs is immutable", f"{_MADE}; {_FLAGS.replace('FLAG', '16')}", _FLAGS.replace("FLAG", "0"),
    "home-readonly", "folder-readonly", says="not permitted|immutable|may not write|not writable")  # fmt: skip
row("a default ACL takes the right to write from whatever is made", f"{_MADE}; python3 -c 'import os, struct; "
    f"os.setxattr(\"{_RUNS}\", \"system.posix_acl_default\", struct.pack(\"<IHHIHHIHHI\", 2, *(word for tag in "
    "(1, 4, 32) for word in (tag, 5, 0xFFFFFFFF))))'",
    f"python3 -c 'import os; os.removexattr(\"{_RUNS}\", \"system.posix_acl_default\")'", "home-readonly",
    "folder-readonly", says=r"permission denied|may not write|not writable|\bACL\b")  # fmt: skip
row("users may not write to /var/tmp", "mount -t tmpfs -o mode=755 none /var/tmp", "umount -l /var/tmp",
    "folder-readonly", says="/var/tmp|permission denied")  # fmt: skip
row("PAM gives each user a /var/tmp of one's own", "set -e; mkdir -p /srv/kept; [ ! -e /var/tmp/muster-claims ] || mv "
    "/var/tmp/muster-claims /srv/kept/; mkdir -m 000 /var/tmp/inst; echo '/var/tmp /var/tmp/inst/ user root' "
    ">>/etc/security/namespace.conf; echo 'session required pam_namespace.so' >>/etc/pam.d/sshd",
    "sed -i '/pam_namespace/d' /etc/pam.d/sshd; sed -i '/inst. user root/d' /etc/security/namespace.conf; rm -rf "
    "/var/tmp/inst /var/tmp/muster-claims; mv /srv/kept/* /var/tmp/; rmdir /srv/kept", "mount-missing",
    says=r"does not see|/var/tmp|does not exist|namespace|polyinst")  # fmt: skip
row("the host's Python is the minimal one, without json", "for at in /usr/lib/python3.*/json; do mv $at $at.kept; done",
    "for at in /usr/lib/python3.*/json.kept; do mv $at ${at%.kept}; done", "no-python", "probe-died",
    says="json.{0,30}(missing|module)|No module named")  # fmt: skip
program("the GPU's driver was upgraded, the module in the kernel was not", "/usr/bin/nvidia-smi",
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18", "gpu-driver",
        "gpu-faulty", "gpu-lost", "gpu-runtime", says="NVML|mismatch|nvidia-smi|driver")  # fmt: skip
program("a GPU fell off the bus, and nvidia-smi never ends", "/usr/bin/nvidia-smi", "#!/bin/sh\nexec sleep 1997",
        "gpu-driver", "gpu-faulty", "gpu-lost", more_mends="pkill -fx 'sleep 1997' || true",
        says="nvidia-smi|driver")  # fmt: skip
row("a guard of the login node kills Pythons that compute", "setsid sh -c 'while sleep 0.5; do ps -u 1000 -o "
    "pid=,cputimes=,comm= | while read -r pid took name; do case $name in python*|pt_*) [ $took -lt 3 ] || kill -9 "
    "$pid;; esac; done; done' </dev/null >/dev/null 2>&1 & echo $! >/run/campus.pid",
    "pkill -KILL -s $(cat /run/campus.pid)", "proof-failed", says="kill|137|signal 9")  # fmt: skip

# Faults: the network.
_SHAPED = ("set -e; tc qdisc add dev eth0 root handle 1: htb; tc class add dev eth0 parent 1: classid 1:10 htb rate "
           "1gbit; tc filter add dev eth0 parent 1: protocol ip u32 match ip dst $PEER flowid 1:10; "
           "tc qdisc add dev eth0 parent 1:10 ")  # fmt: skip
_UNSHAPED = "tc qdisc del dev eth0 root; ip link set eth0 txqueuelen 0"
row("a shaper of packets to the peer whose burst is smaller than a packet",
    f"{_SHAPED}tbf rate 100mbit burst 1000 limit 200000", _UNSHAPED, "mtu-blackhole",
    says=r"(large|big) packets|\bMTU\b|packets of (more than )?[0-9]+|burst", pair=True)  # fmt: skip
row("credits for 6 MB to the peer, then 400 kbit/s", f"{_SHAPED}tbf rate 400kbit burst 6mb limit 400000",
    _UNSHAPED, "link-slow", "link-loss",
    says=r"slow|[kM]bit|[kM]B/s|burst|credit", pair=True)  # fmt: skip
_STRIP = "-p tcp --tcp-flags SYN,ACK SYN,ACK -j TCPOPTSTRIP --strip-options wscale"
firewall("a middlebox takes the window's scale from answers", f"mangle OUTPUT -o eth0 -d $PEER {_STRIP}",
         f"mangle PREROUTING -i eth0 -s $PEER {_STRIP}", causes=("link-slow", "link-delay", "connection-cut"),
         says=r"window|slow|[kM]B/s|[kM]bit", on=0)  # fmt: skip
_MARKED = "mangle PREROUTING -i eth0 -s $PEER -p tcp"
firewall("one leg of the bond is dead: half of the connections vanish", f"{_MARKED} -m mark --mark 2 -j DROP",
         f"{_MARKED} -j HMARK --hmark-tuple sport,dport --hmark-mod 2 --hmark-offset 1 --hmark-rnd 0xfeed",
         causes=(*_SILENT, "connections-limited", "link-loss"),
         says=r"\bhalf\b|\b[0-9]+ of [0-9]+|some (of|connections|calls)")  # fmt: skip
firewall("a container that is gone still has the rendezvous's port",
         "nat PREROUTING -i eth0 -p tcp --dport 29500 -j DNAT --to-destination $net.9:29500",
         before="net=$(ip -4 -o address show docker0 | sed 's/.*inet //; s/[.][0-9]*[/].*//')",
         causes=(*_SILENT, "rendezvous-rejected", "endpoint-foreign", "endpoint-nobody"),
         says=r"\bD?NAT\b|redirect|forward|published", on=0)  # fmt: skip
firewall("small segments on the way to the peer, and a rule against small segments",
         "filter OUTPUT -o eth0 -p tcp --tcp-flags SYN SYN -m tcpmss --mss 1:500 -j DROP",
         before="ip route add $PEER/32 dev eth0 advmss 400", after="ip route del $PEER/32",
         says=r"\bMSS\b|advmss|segment")  # fmt: skip
firewall("who calls a closed port is shut out for two minutes", "mangle PREROUTING -i eth0 -s $PEER -p tcp -j campus",
         before="iptables -t mangle -N campus; iptables -t mangle -A campus -m recent --name campus --rcheck --seconds "
         "120 -j DROP; iptables -t mangle -A campus -p tcp --syn -m socket --nowildcard -j RETURN; iptables -t mangle "
         "-A campus -p tcp --syn -m recent --name campus --set -j DROP",
         after="iptables -t mangle -F campus; iptables -t mangle -X campus",
         causes=(*_SILENT, "connections-limited"), says=r"closed port|\bscan|\bban|shut out", on=0)  # fmt: skip
firewall("what comes from the host's own address is dropped as forged", f"filter INPUT -s {_OWN} -j DROP",
         causes=(*_SILENT, "loopback-silent"), says="(its|the host's) own address|itself", on=0)  # fmt: skip
firewall("an inspector of packets is stopped, the rule that feeds it is not",
         "filter INPUT -i eth0 -s $PEER -p tcp --tcp-flags SYN NONE -j NFQUEUE --queue-num 7",
         causes=(*_SILENT, "connection-cut"),
         says=r"NFQUEUE|nothing (comes|came|arrive)|connect(s|ed)\b.*\b(but|never|nothing)\b|silent")  # fmt: skip

# Oddities: the engine and its client.
engine("containers may not talk to each other, nor be forwarded, and have large packets",
       {"icc": False, "ip-forward": False, "userland-proxy": False, "mtu": 9000},
       after="sysctl -q -w net.ipv4.conf.docker0.route_localnet=0")  # fmt: skip
row("somebody broke daemon.json, and the engine has not been started since", "cp /etc/docker/daemon.json "
    "/run/campus.json; echo '{\"log-driver\": ' >/etc/docker/daemon.json", "cat /run/campus.json "
    ">/etc/docker/daemon.json")  # fmt: skip
row("somebody's container starts again and again",
    f"docker run -d --restart always --entrypoint false --name someones {_IMAGE}", "docker rm -f someones")  # fmt: skip

# Oddities: the user, the shell, SSH.
_USER, _GROUP = 1668912345, 1668800513
row("the user's and the group's number are those of a directory", "set -e; cp /etc/passwd /run/campus.passwd; cp "
    f"/etc/group /run/campus.group; sed -i -E 's/^(muster:[^:]*):1000:1000:/\\1:{_USER}:{_GROUP}:/' /etc/passwd; sed "
    f"-i -E 's/^(muster:[^:]*):1000:/\\1:{_GROUP}:/' /etc/group; chown -R {_USER}:{_GROUP} {HOME}; rm -rf "
    "/var/tmp/muster-claims",
    f"cat /run/campus.passwd >/etc/passwd; cat /run/campus.group >/etc/group; chown -R 1000:1000 {HOME}; rm -rf "
    "/var/tmp/muster-claims")  # fmt: skip
row("the user's own group has no name", "cp /etc/group /run/campus.group; sed -i '/^muster:/d' /etc/group",
    "cat /run/campus.group >/etc/group")  # fmt: skip
shell("each shell begins in a folder that is gone", "mkdir /tmp/campus.$$ && cd /tmp/campus.$$ && rmdir /tmp/campus.$$")
shell("each shell, and each shell of its scripts, prints what it does", "export SHELLOPTS; set -x")
login("the login shell is dash", "/bin/dash")
row("sshd asks who calls, and the name server never answers", "cp /etc/resolv.conf /run/campus.resolv; printf "
    "'nameserver 192.0.2.53\\noptions timeout:2 attempts:1\\n' >/etc/resolv.conf; printf 'UseDNS yes\\n' "
    f">{SSHD}; {AGAIN}", f"cat /run/campus.resolv >/etc/resolv.conf; rm {SSHD}; {AGAIN}", "ssh-silent", "ssh-timeout",
    "ssh-slow")  # fmt: skip

# Oddities: folders, devices, programs, the network.
row("the mount of the homes may not be bound elsewhere", "mount --bind /home /home; mount --make-unbindable /home",
    "umount -l /home", "docker-refused", "mount-missing", "mount-closed", "proof-failed",
    says="invalid argument|unbindable|bind.?mount|mount.*bind")  # fmt: skip
row("the runs lie on a file system that tells no sizes", f"{_MADE}; mount -t ramfs -o mode=700 none {_RUNS}; chown "
    f"muster:muster {_RUNS}", f"umount -l {_RUNS}")  # fmt: skip
row("neither ip, ss, ps, free, nc nor sudo, and no os-release", "mkdir /opt/away; for each in ip ss ps free nc sudo; "
    "do at=$(command -v $each) || continue; mv $at /opt/away/$each; echo mv /opt/away/$each $at; done "
    ">/run/campus.back; mv /etc/os-release /opt/away/", "sh /run/campus.back; mv /opt/away/os-release "
    "/etc/; rmdir /opt/away")  # fmt: skip
row("an empty /dev/infiniband is left over", "mkdir /dev/infiniband", "rmdir /dev/infiniband")
row("device files of a GPU that was taken out", "mknod -m 666 /dev/nvidia0 c 195 0; mknod -m 666 /dev/nvidiactl c 195 "
    "255", "rm /dev/nvidia0 /dev/nvidiactl")  # fmt: skip
row("the host's address is on a bridge, its card is a port of that", "set -e; set -- $(ip -4 -o address show eth0); "
    "at=$4; set -- $(ip route show default); via=$3; ip link add br0 address $(cat /sys/class/net/eth0/address) type "
    "bridge; ip link set br0 up; ip address del $at dev eth0; ip link set eth0 master br0; ip address add $at brd + "
    "dev br0; ip route add default via $via", "set -- $(ip -4 -o address show br0); at=$4; set -- $(ip route show "
    "default); via=$3; ip link del br0; ip address add $at brd + dev eth0; ip route add default via $via")  # fmt: skip
row("a VPN that is off has the default route, the host's network does not go there", "set -e; ip link add vpn0 type "
    "bridge; ip link set vpn0 up; ip address add 10.218.0.2/24 dev vpn0; ip route add default dev vpn0 table 51820; ip "
    "rule add pref 200 not fwmark 0xca6c table 51820; ip rule add pref 100 table main suppress_prefixlength 0",
    "ip rule del pref 100; ip rule del pref 200; ip link del vpn0")  # fmt: skip
row("/etc/hosts has fifty thousand names of advertisers", "cp /etc/hosts /run/campus.hosts; seq 50000 | sed "
    "'s/.*/0.0.0.0 ads&.example.net/' >>/etc/hosts", "cat /run/campus.hosts >/etc/hosts")  # fmt: skip

CAMPUS, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
