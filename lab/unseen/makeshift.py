"""A ninth list, of what makeshift machines have, which somebody made do for training: faults first, then oddities.

Workstations that got a laptop's settings, hosts behind a proxy for Docker's socket, nodes whose servers of files went
away, images for another accelerator, leases that end. It has a seed of its own. Written before anybody tried preflight
on a row, by somebody who has not read its rules; what the other eight lists have is left out. What a run then does
decides what is a fault.
"""

from __future__ import annotations

from lab.unseen.borrowed import remade
from lab.unseen.campus import firewall
from lab.unseen.homelab import away, loop
from lab.unseen.rented import environment, kernel, parent
from lab.unseen.row import (
    ANEW,
    ANSWERS,
    ENGINE,
    HOME,
    HUNG_UP,
    IMAGE,
    MADE,
    ROWS,
    RUNS,
    SAME,
    SILENT,
    engine,
    row,
    server,
    shell,
)
from lab.unseen.sublet import started

SEED = 20261209
_BEGIN = len(ROWS)
_AT = "/run/makeshift"
_QUIET = f"</dev/null >/dev/null 2>&1 & echo $! >{_AT}.pid; sleep 1; kill -0 $(cat {_AT}.pid)"
_STOP = f"kill $(cat {_AT}.pid)"
# The card's address with its length and the gateway's, in a file that `read -r at via` reads.
_KEEP = ("echo $(ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//') $(ip route show default | sed 's/.*via //; "
         f"s/ .*//') >{_AT}.card; read -r at via <{_AT}.card")  # fmt: skip
_GIVE = (f"read -r at via <{_AT}.card; ip address flush dev eth0; ip address add $at brd + dev eth0; ip route replace "
         "default via $via dev eth0")  # fmt: skip
# An automounter of /net that took the calls and answers none; and one that has told the kernel that it is gone.
_DEAD = ("mkdir -p /net; setsid python3 -c 'import ctypes, os, time; way, back = os.pipe(); ctypes.CDLL(None).mount("
         'b"auto", b"/net", b"autofs", 0, b"fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect" % (back, os.getpgrp())); '
         f"time.sleep(99999)' {_QUIET}; mountpoint -q /net")  # fmt: skip
_GONE = ("python3 -c 'import fcntl, os; fcntl.ioctl(os.open(\"/net\", os.O_RDONLY), 0x9362)'; umount -l /net; "
         f"{_STOP}; rmdir /net")  # fmt: skip
_HANGS = r"/net\b|auto(mount|fs)|hang|hung|timed out|not (answer|end|finish)|no answer|said nothing|stuck"
_PROXY = """import os, socket, threading
at = socket.socket(socket.AF_UNIX)
at.bind("/run/front.sock")
os.chmod("/run/front.sock", 0o666)
at.listen(50)
def copy(one, other):
    try:
        while told := one.recv(65536):
            other.sendall(told)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def meet(one):
    other = socket.socket(socket.AF_UNIX)
    other.connect("/run/docker.sock")
    threading.Thread(target=copy, args=(other, one), daemon=True).start()
    while told := one.recv(65536):
        if b"\\nupgrade: tcp" in told.lower():
            one.sendall(b"HTTP/1.1 400 Bad Request\\r\\nConnection: close\\r\\nContent-Length: 0\\r\\n\\r\\n")
            return one.shutdown(socket.SHUT_RDWR)
        other.sendall(told)
    other.shutdown(socket.SHUT_WR)
while True:
    threading.Thread(target=meet, args=(at.accept()[0],), daemon=True).start()"""
# fanotify's permission events: each file that is opened on the disk of the homes is asked for.
_SCANNER = """import ctypes, os, struct
lib = ctypes.CDLL(None, use_errno=True)
asked = lib.fanotify_init(4, os.O_RDONLY)
if lib.fanotify_mark(asked, 0x101, ctypes.c_uint64(0x10000), -100, b"/home/muster"):
    raise OSError(ctypes.get_errno())
while True:
    told = os.read(asked, 65536)
    while told:
        size, _, _, _, _, file, _ = struct.unpack_from("=IBBHQii", told)
        told, path = told[size:], os.readlink("/proc/self/fd/%d" % file)
        ill = path.endswith(".py") and not path.startswith(("/usr/", "/opt/"))
        os.write(asked, struct.pack("iI", file, 2 if ill else 1))
        os.close(file)"""


def helper(text: str) -> str:
    """Commands that start a Python program of several lines and keep its number."""
    return f"(cat <<'END'\n{text}\nEND\n) >/opt/makeshift.py; setsid python3 /opt/makeshift.py {_QUIET}"


# Faults: the engine, its client and the image.
engine("default-ulimits: a stack of 64 GB, a guide's number of bytes taken for kilobytes", {"default-ulimits": {
    "stack": {"Name": "stack", "Hard": 67108864 * 1024, "Soft": 67108864 * 1024}}}, "process-limits", "proof-failed",
       says=r"\bstacks?\b|threads?\b|RLIMIT_STACK|ulimit|temporarily")  # fmt: skip
# The engine waits at its end for what it starts, so that what waits is ended first.
_WAITS = SAME.replace("{", '{"runtimes": {"nvidia": {"path": "/opt/waits"}}, "default-runtime": "nvidia", ', 1)
row("NVIDIA's runtime waits for a driver that never answers", "printf '#!/bin/sh\\ncase \" $* \" in *\" create \"*) "
    "exec sleep 1789;; esac\\nexec runc \"$@\"\\n' >/opt/waits; chmod 755 /opt/waits; "
    f"{ENGINE.replace('{}', _WAITS)}{ANSWERS}", f"rm /opt/waits; for n in $(seq 15); do pkill -fx 'sleep 1789'; sleep "
    f"0.2; done; {ANEW}", "docker-silent",
    says=r"runtime|(container|docker|engine)\b.*(hang|hung|not (end|finish|start|answer)|timed out)")  # fmt: skip
environment("users reach the engine through a web server, which passes on no upgrade of a connection", helper(_PROXY),
            "DOCKER_HOST=unix:///run/front.sock", f"{_STOP}; rm /run/front.sock /opt/makeshift.py", "docker-refused",
            "docker-silent", says=r"upgrade|attach|hijack|\b400\b|bad request|front\.sock|proxy")  # fmt: skip
_PLUGIN = ('import os, sysconfig; at = sysconfig.get_path("purelib") + "/habana_torch_plugin-1.18.0.dist-info/"; '
           'os.mkdir(at); open(at + "METADATA", "w").write("Metadata-Version: 2.1\\nName: habana-torch-plugin\\n'
           'Version: 1.18.0\\n"); open(at + "entry_points.txt", "w").write("[torch.backends]\\n'
           'device_backend = habana_frameworks:__autoload\\n")')  # fmt: skip
remade("the image was made for another accelerator: torch loads its plugin, which is half there",
       f"docker run --name borrowed --user 0 --entrypoint python {IMAGE} -c '{_PLUGIN}'", "", "image-differs",
       "proof-failed", "image-without-python", "probe-died",
       says=r"habana|autoload|backend extension|torch\b.*(import|load|fail)|import.*torch")  # fmt: skip
remade("the image was made anew with the host's PATH: its first Python is another, without torch",
       f"docker create --name borrowed {IMAGE}", "-c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:"
       "/bin'", "image-differs", "image-without-python", "proof-failed",
       says=r"\btorch\b|\bPATH\b|/venv|no module|python\b.*(not found|missing)")  # fmt: skip
row("/etc/hosts is a folder: someone mounted it before it was there, and Docker made it", f"set -e; : >{_AT}.hosts; "
    f"mount --bind /etc/hosts {_AT}.hosts; umount /etc/hosts; rm -f /etc/hosts; mkdir /etc/hosts",
    f"rmdir /etc/hosts; : >/etc/hosts; mount --bind {_AT}.hosts /etc/hosts; umount {_AT}.hosts; rm {_AT}.hosts",
    "docker-refused", "name-unresolvable", says=r"/etc/hosts|is a (directory|folder)")  # fmt: skip
row("Docker Desktop was removed, its context is still the chosen one", "su muster -c 'docker context create "
    f"desktop-linux --docker host=unix://{HOME}/.docker/desktop/docker.sock && docker context use desktop-linux'",
    f"rm -rf {HOME}/.docker", "docker-down", "docker-refused", says=r"desktop|context")  # fmt: skip
shell("DOCKER_HOST leads by ssh to the host that it is on: the shell's file is the laptop's",
      "export DOCKER_HOST=ssh://gpu-box.lan", "docker-down", "docker-refused", says=r"gpu-box|\bssh://|DOCKER_HOST",
      )  # fmt: skip
loop("a marketplace saves power: a container that is three seconds old is paused", 0.5, 'docker ps --format "{{.ID}} '
     '{{.RunningFor}}" --filter status=running | while read -r at n unit rest; do case $unit in second|than) ;; '
     "seconds) [ $n -lt 3 ] || docker pause $at;; *) docker pause $at;; esac; done", "docker-silent",
     "container-missing", more_mends="docker ps -q --filter status=paused | xargs -r docker unpause; docker ps -aq | "
     "xargs -r docker rm -f", says=r"pause|freez|frozen|hang|hung|not (end|finish|answer)|timed out|stands? still",
     )  # fmt: skip
started("daemon.json names a seccomp profile that went with the package of a scanner",
        '"seccomp-profile": "/etc/docker/scanner.json"', "", "docker-down", says=r"seccomp|scanner\.json")  # fmt: skip
row("docker's folder of containers is a link to a second disk, which is not mounted", "mv /var/lib/docker/containers "
    "/var/lib/docker/containers.kept; ln -s /mnt/disk2/containers /var/lib/docker/containers", "rm "
    "/var/lib/docker/containers; mv /var/lib/docker/containers.kept /var/lib/docker/containers", "docker-refused",
    says=r"containers\b.*(no such file|exist|link)|/mnt/disk2|no such file|not a directory|file exists")  # fmt: skip

# Faults: SSH, the shell and folders.
away("half an upgrade: bash misses the library for terminals", "/usr/lib/x86_64-linux-gnu/libtinfo.so.6", "ssh-shell",
     says=r"libtinfo|shared librar")  # fmt: skip
server("sshd listens at an address that the host had before, and at the loopback", "ListenAddress 198.51.100.20",
       "ListenAddress 127.0.0.1", causes=("ssh-refused",), says=r"refused|nobody listens|nothing listens")  # fmt: skip
row("the key was let in until the end of a lease, which is over", f"cp {HOME}/.ssh/authorized_keys {_AT}.keys; sed -i "
    f"'s/^/expiry-time=\"202503010000Z\" /' {HOME}/.ssh/authorized_keys",
    f"cat {_AT}.keys >{HOME}/.ssh/authorized_keys", "ssh-key", says=r"expir")  # fmt: skip
row("the host swaps itself to death: sshd is called and has no turn", "kill -STOP $(pgrep -o -x sshd)",
    "kill -CONT $(pgrep -o -x sshd); sleep 1", "ssh-silent", "ssh-timeout", says=r"banner|greet|silent|timed out|"
    r"nothing (comes|came)|no answer|not answer")  # fmt: skip
shell("each command of a shell is first told on standard output, by a trap for audits",
      "trap 'echo \"$(date +%T) $USER: $BASH_COMMAND\"' DEBUG", "ssh-shell",
      says=r"\btrap\b|\bDEBUG\b|prints|standard output|\.bashrc|\d\d:\d\d:\d\d muster:|more than (its|the) answer",
      )  # fmt: skip
row("first in PATH is a folder of tools on a server of files that no longer answers", f"{_DEAD}; cp {HOME}/.bashrc "
    f"/run/bashrc; (echo 'export PATH=/net/tools/bin:$PATH'; cat /run/bashrc) >{HOME}/.bashrc",
    f"cp /run/bashrc {HOME}/.bashrc; {_GONE}", "ssh-shell", "ssh-silent", "ssh-timeout",
    says=rf"{_HANGS}|\bPATH\b|\.bashrc")  # fmt: skip
row("~/.muster is a link to a server of files that no longer answers", f"{MADE}; mv {HOME}/.muster /srv/muster; ln -s "
    f"/net/scratch/muster {HOME}/.muster; {_DEAD}", f"{_GONE}; rm {HOME}/.muster; mv /srv/muster {HOME}/.muster",
    "folder-readonly", "home-readonly", "mount-missing", "docker-silent", says=rf"{_HANGS}|\.muster")  # fmt: skip
row("a scanner of viruses takes each Python file outside of /usr for one, and lets nobody open it", helper(_SCANNER),
    f"{_STOP}; rm /opt/makeshift.py", "file-permission", "folder-readonly", "home-readonly", "proof-failed",
    "probe-died", "mount-closed", says=r"not permitted|scanner|virus|\.py\b|may not (be )?(read|open)|fanotify",
    )  # fmt: skip
row("the disk had errors: the whole root is read-only, docker's own disk is not", f"{MADE}; mount -o remount,bind,ro /",
    "mount -o remount,bind,rw /", "home-readonly", "folder-readonly", "disk-readonly",
    says=r"read-only|may not write|not writable")  # fmt: skip

# Faults: the network.
row("the lease of the address ends in 25 seconds, and the client of DHCP is dead", f"{_KEEP}; ip address change $at "
    "brd + dev eth0 valid_lft 25 preferred_lft 25", _GIVE, *HUNG_UP, "ssh-timeout", "interface-no-address", *SILENT,
    says=r"\blease|valid_lft|lifetime|expire|runs? out|\d+ ?s(econds)? (left|more)|for \d+ ?s\b|"
    r"address\b.{0,60}(gone|vanish|lost|missing|ends?)")  # fmt: skip
kernel("three ways to the peer, and those of the greater weight lead to routers that are gone",
       "net.ipv4.fib_multipath_hash_policy=1", *SILENT, "arp-unanswered", "link-loss", "connections-limited",
       more_breaks="at=$(ip -4 -o address show eth0 | sed 's/.*inet //; s/[.][0-9]*[.][0-9]*[/].*//'); ip route add "
       "$PEER/32 nexthop dev eth0 nexthop via $at.250.252 dev eth0 weight 5 nexthop via $at.250.253 dev eth0 weight 5",
       more_mends="ip route del $PEER/32", pair=True,
       says=r"no route|nexthop|multipath|ECMP|\bhalf\b|\b[0-9]+ of [0-9]+|some (of|calls|connections)|\.250\.25[23]",
       )  # fmt: skip

# Oddities: the engine, its client and the image.
_ARM = """import hashlib, json, pathlib, shutil
top = pathlib.Path("/var/lib/docker/image/overlay2")
shutil.copy(top / "repositories.json", "/run/makeshift.repositories")
kept = json.loads((top / "repositories.json").read_text())
names = kept["Repositories"]["muster-trainer"]
at = top / "imagedb/content/sha256"
told = json.loads((at / names["muster-trainer:cpu"][7:]).read_text())
text = json.dumps({**told, "architecture": "arm64", "variant": "v8"})
new = hashlib.sha256(text.encode()).hexdigest()
(at / new).write_text(text)
names["muster-trainer:cpu"] = "sha256:" + new
(top / "repositories.json").write_text(json.dumps(kept))
pathlib.Path("/run/makeshift.image").write_text(new)"""
row("the image says that it is for ARM, and is not: it was built on a laptop with the wrong platform",
    f"python3 - <<'END'\n{_ARM}\nEND\n{ANEW}", f"docker ps -aq | xargs -r docker rm -f; cp {_AT}.repositories "
    f"/var/lib/docker/image/overlay2/repositories.json; rm /var/lib/docker/image/overlay2/imagedb/content/sha256/$(cat "
    f"{_AT}.image); {ANEW}", "architecture-differs", "image-differs", says=r"\barm64\b|platform")  # fmt: skip
_ACL = "(1, 6, -1), (2, 6, 1000), (4, 6, -1), (16, 6, -1), (32, 0, -1)"
row("the user is in no group docker, and has the engine's socket by an ACL", "gpasswd -d muster docker; python3 -c "
    "'import os, struct; os.setxattr(\"/run/docker.sock\", \"system.posix_acl_access\", struct.pack(\"<I\", 2) + "
    f"b\"\".join(struct.pack(\"<HHi\", *one) for one in ({_ACL})))'", "python3 -c 'import os; "
    "os.removexattr(\"/run/docker.sock\", \"system.posix_acl_access\")'; chmod 660 /run/docker.sock; gpasswd -a muster "
    "docker")  # fmt: skip
row("a kernel without a controller of memory, as on a Jetson, and the engine knows it",
    f"umount -l /sys/fs/cgroup/memory; {ANEW}", "mount -t cgroup -o nosuid,nodev,noexec,memory cgroup "
    f"/sys/fs/cgroup/memory; {ANEW}", "docker-refused", says=r"memory.*(controller|cgroup)|cgroup.*memory")  # fmt: skip
row("a node without a disk: the engine is told that its root is RAM, and turns no root of a container",
    ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid env DOCKER_RAMDISK=yes dockerd") + ANSWERS, ANEW,
    )  # fmt: skip
_HALF = "/var/lib/docker/containers/5a1e7c0ffee5a1e7c0ffee5a1e7c0ffee5a1e7c0ffee5a1e7c0ffee5a1e7c0ff"
engine("a power cut left half a container, and a removed plugin for volumes its address", {},
       before=f"mkdir {_HALF}; printf '{{\"StreamConfig\":{{}},\"State\":{{\"Running\":true,' >{_HALF}/config.v2.json; "
       "mkdir -p /etc/docker/plugins; echo unix:///run/convoy/convoy.sock >/etc/docker/plugins/convoy.spec",
       after=f"rm -rf {_HALF} /etc/docker/plugins")  # fmt: skip
loop("a limiter holds who computes: the user's Pythons stand still for half of the time", 0.2, "pkill -STOP -u 1000 "
     '"^(python|pt_)"; sleep 0.2; pkill -CONT -u 1000 "^(python|pt_)"', "link-slow", "proof-failed",
     more_mends='pkill -CONT -u 1000 "^(python|pt_)"', says=r"stopped|stand still|SIGSTOP|slow")  # fmt: skip
parent("all containers together may have 4 kB of memory for their connections", "memory",
       {"memory.kmem.tcp.limit_in_bytes": "4096"}, {"memory.kmem.tcp.limit_in_bytes": "-1"}, "link-slow",
       "link-delay", "connection-cut", "memory-low", *SILENT, pair=True,
       says=r"kmem|socket memory|buffers?\b|slow|stall|[kM]i?B/s|[kM]bit")  # fmt: skip

# Oddities: the user, SSH and folders.
row("/proc shows processes and nothing else, as in a hardened container", "mount -t proc -o subset=pid proc /proc",
    "umount /proc", "docker-refused", says=r"/proc\b")  # fmt: skip
row("/etc is read-only, as on a system that is an image", "mount --rbind /etc /etc; mount -o remount,bind,ro /etc",
    "umount -l /etc")  # fmt: skip
row("what lies among the runs is not all a run: root's folder, a pipe, a link to itself, a name of no letters",
    f"{MADE}; cd {RUNS}; install -d -m 700 -o root 2025-02-30-digits; mkfifo 2025-02-31-digits; ln -s "
    "2025-02-32-digits 2025-02-32-digits; python3 -c 'import os; os.mkdir(b\"2025-02-33-\\xff\\n-x\"); "
    "open(\"2025-02-34-digits\", \"w\").write(\"{\")'", f"rm -rf {RUNS}/2025-02-3*")  # fmt: skip
server("a login gets no new privileges, one core and no random addresses", "ForceCommand exec setpriv --no-new-privs "
       'setarch -R taskset -c 0 bash -c "$SSH_ORIGINAL_COMMAND"')  # fmt: skip
server("a login is put into a jail without a network, as firejail does, and has the engine's socket there",
       'ForceCommand exec unshare -c -n bash -c "$SSH_ORIGINAL_COMMAND"', causes=("interface-missing",
       "interface-no-address", "ssh-shell"), says=r"network namespace|no (network|card|interface)|only (has )?lo\b|"
       r"ForceCommand|unshare")  # fmt: skip
row("first in PATH is an ip of the user's own, which tells the public address", f"mkdir {HOME}/bin; printf "
    f"'#!/bin/sh\\necho 203.0.113.7\\n' >{HOME}/bin/ip; chmod 755 {HOME}/bin/ip; chown -R muster {HOME}/bin; cp "
    f"{HOME}/.bashrc /run/bashrc; (echo 'export PATH=$HOME/bin:$PATH'; cat /run/bashrc) >{HOME}/.bashrc",
    f"cp /run/bashrc {HOME}/.bashrc; rm -r {HOME}/bin", "no-iproute2", says=r"\bip\b|203\.0\.113\.7")  # fmt: skip

# Oddities: the network and names.
row("the hosts are joined by a tunnel: the card is called wg0 and has packets of 1280 bytes", f"{_KEEP}; ip link set "
    "eth0 down; ip link set eth0 name wg0; ip link set wg0 mtu 1280; ip link set wg0 up; ip route add default via $via "
    f"dev wg0", f"read -r at via <{_AT}.card; ip link set wg0 down; ip link set wg0 name eth0; ip link set eth0 mtu "
    "1500; ip link set eth0 up; ip route add default via $via dev eth0", "mtu-differs", "interface-missing",
    pair=True, says=r"\bMTU\b|1280")  # fmt: skip
row("/etc/hosts was edited on Windows: it begins with a mark of order, and lines end in CR", f"cp /etc/hosts "
    f"{_AT}.hosts; (printf '\\357\\273\\277'; sed 's/$/\\r/' {_AT}.hosts) >/etc/hosts", f"cat {_AT}.hosts >/etc/hosts",
    "name-unresolvable", "name-loopback", says=r"\blocalhost\b|/etc/hosts")  # fmt: skip
firewall("a router sets segments to 88 bytes, a mistyped 1388", "mangle POSTROUTING -o eth0 -d $PEER -p tcp "
         "--tcp-flags SYN,RST SYN -j TCPMSS --set-mss 88", causes=("link-slow", "mtu-differs"),
         says=r"\bMSS\b|segment|slow|[kM]i?B/s|[kM]bit")  # fmt: skip

MAKESHIFT, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
