"""An eleventh list, of what machines have that others administer: faults first, then oddities.

Company IT and its agents (endpoint protection, policies, scanners, config management that puts things back), hardening
by guides, hosts that went from one release to the next. It has a seed of its own. Written before anybody tried
preflight on a row, by somebody who has not read its rules; what the other ten lists have is left out. What a run then
does decides what is a fault.
"""

from __future__ import annotations

import json
from typing import Any

from lab.unseen.borrowed import remade
from lab.unseen.campus import firewall
from lab.unseen.homelab import loop, pam, profile
from lab.unseen.inherited import wrapper
from lab.unseen.rented import environment
from lab.unseen.row import (
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
from lab.unseen.salvaged import runtime

SEED = 20270103
_BEGIN = len(ROWS)
_AT = "/run/managed"
_STOP = f"kill $(cat {_AT}.pid); rm /opt/managed.py"
_OWN = "$(ip -4 -o address show eth0 | sed 's/.*inet //; s/[/].*//')"
_KILLED = r"\bkill(ed|s)?\b|\b137\b|SIGKILL|signal 9"
_USER = 3000000000
# fanotify's permission events of a kind on the disk of the host's root: EACH says what is right for a file at `path`.
_ASKED = """import ctypes, os, struct, time
lib = ctypes.CDLL(None, use_errno=True)
asked = lib.fanotify_init(4, os.O_RDONLY)
if lib.fanotify_mark(asked, 0x101, ctypes.c_uint64(KIND), -100, b"/home/muster"):
    raise OSError(ctypes.get_errno())
while True:
    told = os.read(asked, 65536)
    while told:
        size, _, _, _, _, file, _ = struct.unpack_from("=IBBHQii", told)
        told, path = told[size:], os.readlink("/proc/self/fd/%d" % file)
        os.write(asked, struct.pack("iI", file, EACH))
        os.close(file)"""
# A plugin of the engine's that looks into what a container is made from.
_JUDGE = """import base64, http.server, json, os, socketserver
class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        body = base64.b64decode(asked.get("RequestBody") or "")
        told = (json.loads(body) if body[:1] == b"{" else {}).get("HostConfig") or {}
        mounts = [*(told.get("Binds") or ()), *(one.get("Source", "") for one in told.get("Mounts") or ())]
        bad = any(one.startswith("/home/") for one in mounts)
        said = {"Implements": ["authz"], "Allow": not bad, "Msg": "policy DLP-17: no folder of a home in a container"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())
    def log_message(self, *words):
        pass
class Door(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
os.makedirs("/run/docker/plugins", exist_ok=True)
Door("/run/docker/plugins/opa.sock", Judge).serve_forever()"""
# It calls what listens here each third of a second, as scanners do that look for servers of the web.
_SCANNER = """import socket, sys, time
while True:
    lines = [line.split() for name in ("tcp", "tcp6") for line in open("/proc/net/" + name).readlines()[1:]]
    for port in {int(words[1].rsplit(":", 1)[1], 16) for words in lines if words[3] == "0A"} - {22}:
        try:
            with socket.create_connection((sys.argv[1], port), timeout=1) as one:
                one.sendall(b"GET / HTTP/1.0\\r\\nUser-Agent: scanner\\r\\n\\r\\n")
        except OSError:
            pass
    time.sleep(0.3)"""


def helper(text: str, words: str = "") -> str:
    """Commands that start a Python program of several lines and keep its number."""
    return (f"(cat <<'END'\n{text}\nEND\n) >/opt/managed.py; setsid python3 /opt/managed.py {words} </dev/null "
            f">/dev/null 2>&1 & echo $! >{_AT}.pid; sleep 1; kill -0 $(cat {_AT}.pid)")  # fmt: skip


def agent(name: str, text: str, *causes: str, words: str = "", **more: Any) -> None:
    """A row of a Python program that runs on the host."""
    row(name, helper(text, words), _STOP, *causes, **more)


# Faults: SSH, the login and the account.
server("sshd reads no lists of keys any more: only certificates of the company are let in",
       "TrustedUserCAKeys /etc/ssh/ssh_host_ed25519_key.pub", "AuthorizedKeysFile none", causes=("ssh-key",),
       says=r"publickey|certificate|\bkeys?\b.*(refuse|reject|not (take|accept|know))|permission denied")  # fmt: skip
server("each login waits until somebody says yes on a phone, and nobody looks at it", 'ForceCommand echo "Pushed a '
       'login request to your phone (XXX-XXX-0142)..." >&2; exec sleep 120', causes=("ssh-shell", "ssh-silent",
       "ssh-timeout"), says=r"push|phone|ForceCommand|hang|hung|timed out|not (answer|end|finish|start)|no answer|"
       r"said nothing|silent|stuck|wait")  # fmt: skip
pam("PAM lets users in from the bastion only", "account required pam_access.so accessfile=/etc/security/managed.conf",
    "ssh-key", "ssh-shell", *HUNG_UP, before="printf '%s\\n' '+:ALL:192.0.2.10' '-:ALL:ALL' "
    ">/etc/security/managed.conf", after="rm /etc/security/managed.conf",
    says=r"\bPAM\b|pam_access|closed|hung up|bastion|access denied")  # fmt: skip
row("a guard of logins lets nobody start a shell, an interpreter or docker", "(cat <<'END'\n#!/bin/sh\ncase "
    "$SSH_ORIGINAL_COMMAND in *docker*|*python*|*bash*|*'sh '*) echo 'Command not permitted by policy PSM-0142.' >&2; "
    "exit 126;; esac\nexec bash -c \"$SSH_ORIGINAL_COMMAND\"\nEND\n) >/usr/local/bin/guard; chmod 755 "
    f"/usr/local/bin/guard; printf 'ForceCommand /usr/local/bin/guard\\n' >{SSHD}; pkill -HUP -o -x sshd; sleep 1",
    f"rm {SSHD} /usr/local/bin/guard; pkill -HUP -o -x sshd; sleep 1", "ssh-shell",
    says=r"policy|PSM-0142|not permitted|ForceCommand|\b126\b")  # fmt: skip
row("a guide had FIPS switched on in openssl.cnf, and its provider is not installed", "mkdir /usr/lib/ssl; (cat <<'END'"
    "\nopenssl_conf = top\n[top]\nproviders = both\nalg_section = wants\n[both]\nfips = on\nbase = on\n[on]\nactivate "
    "= 1\n[wants]\ndefault_properties = fips=yes\nEND\n) >/usr/lib/ssl/openssl.cnf", "rm /usr/lib/ssl/openssl.cnf; "
    "rmdir /usr/lib/ssl", *HUNG_UP, "ssh-key", says=r"closed|reset|hung up|openssl|libcrypto|\bFIPS\b|key exchange|"
    r"host key")  # fmt: skip
row("the directory gave the user a number above two thousand million", "set -e; cp /etc/passwd /run/managed.passwd; "
    f"sed -i -E 's/^(muster:[^:]*):1000:/\\1:{_USER}:/' /etc/passwd; chown -R {_USER} {HOME}; rm -rf "
    f"/var/tmp/muster-claims", f"cat /run/managed.passwd >/etc/passwd; chown -R 1000:1000 {HOME}; rm -rf "
    "/var/tmp/muster-claims", "docker-refused",
    says=rf"2147483647|{_USER}|\buids?\b|(user|number)('s)?\b.{{0,50}}(large|big|high|range)")  # fmt: skip
loop("an epilog of the batch system ends all that belongs to the user, each ten seconds", 10, "pkill -KILL -u muster",
     "proof-failed", "probe-died", "container-missing", *HUNG_UP,
     says=rf"{_KILLED}|closed|hung up|connection\b.{{0,30}}(lost|ended|ends)")  # fmt: skip
row("the user has docker by sudo only, and sudo wants a terminal", "gpasswd -d muster docker; printf 'Defaults "
    "requiretty\\n' >/etc/sudoers.d/zz-guide; chmod 440 /etc/sudoers.d/zz-guide", "rm /etc/sudoers.d/zz-guide; gpasswd "
    "-a muster docker", "docker-permission", says=r"\btty\b|terminal|permission denied|\bgroup\b|sudo")  # fmt: skip

# Faults: the engine, its client, its settings.
environment("the engine was upgraded and takes no API below 1.44, and /etc/environment says 1.41 for an old tool",
            ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid env DOCKER_MIN_API_VERSION=1.44 dockerd")
            + ANSWERS, "DOCKER_API_VERSION=1.41", ANEW, "docker-refused", "docker-down",
            says=r"too old|API version|1\.4[14]\b")  # fmt: skip
engine("default-ulimits: more open files than the kernel of the new release allows", {"default-ulimits": {
    "nofile": {"Name": "nofile", "Hard": 2147483584, "Soft": 2147483584}}}, "docker-refused", "open-files",
       says=r"rlimit|nofile|open files|nr_open")  # fmt: skip
engine("logs go by UDP to a collector only: the engine keeps none to be read here", {"log-driver": "gelf", "log-opts": {
    "gelf-address": "udp://192.0.2.9:12201", "cache-disabled": "true"}}, "docker-refused",
       says=r"\blog(s|ging)?\b|gelf|cache-disabled")  # fmt: skip
runtime("the site's runtime adds a hook of a scanner that was uninstalled", 'spec.setdefault("hooks", {}).setdefault('
        '"createRuntime", []).append({"path": "/opt/scanner/oci-hook"})', "docker-refused",
        says=r"hook|/opt/scanner")  # fmt: skip
row("the kernel has AppArmor on since the upgrade, and its parser may load no profile", "mount -t tmpfs none "
    "/sys/module; mkdir -p /sys/module/apparmor/parameters; echo Y >/sys/module/apparmor/parameters/enabled; mount -t "
    "tmpfs none /sys/kernel/security; mkdir /sys/kernel/security/apparmor; : >/sys/kernel/security/apparmor/profiles; "
    "(cat <<'END'\n#!/bin/sh\necho 'Permission denied; attempted to load a profile while confined?' >&2\nexit 243\n"
    f"END\n) >/sbin/apparmor_parser; chmod 755 /sbin/apparmor_parser; {ANEW}", "umount -l /sys/kernel/security; umount "
    f"-l /sys/module; rm /sbin/apparmor_parser; {ANEW}", "docker-refused", says=r"apparmor")  # fmt: skip
agent("fapolicyd was not told of the engine's upgrade: nobody may execute runc",
      _ASKED.replace("KIND", "0x40000").replace("EACH", '2 if path.endswith("/runc") else 1'), "docker-refused",
      says=r"\brunc\b|not permitted|permission denied|fapolicy|fanotify")  # fmt: skip
engine("a policy of the engine's forbids folders of homes in containers", {"authorization-plugins": ["opa"]},
       "docker-refused", "mount-missing", "mount-closed", before=helper(_JUDGE),
       after=f"{_STOP}; rm -f /run/docker/plugins/opa.sock",
       says=r"DLP-17|policy|plugin|authorization|folder of a home")  # fmt: skip
wrapper("docker is the site's script, which has each image pulled anew from a registry",
        'case $1 in run|create) verb=$1; shift; set -- $verb --pull always "$@";; esac\nexec docker.real "$@"',
        "docker-refused", "docker-wrapped", "image-missing",
        says=r"\bpull|registry|docker\.io|access denied|wrapper|script")  # fmt: skip
profile("a seccomp profile was recorded from a server of the web: no eventfd, timerfd, signalfd, inotify", "ERRNO",
        "eventfd2", "timerfd_create", "signalfd4", "inotify_init1", causes=("proof-failed",),
        says=r"eventfd|not permitted|seccomp|uv_|libuv|EPERM")  # fmt: skip

# Faults: the image.
_APM = ('import sysconfig; open(sysconfig.get_path("purelib") + "/apm.pth", "w").write("import threading; '
        'threading.Thread(target=threading.Event().wait, name=\\"apm\\").start()\\n")')  # fmt: skip
remade("an agent for tracing is in the image, and waits for its collector when a Python ends", "docker run --name "
       f"borrowed --user 0 --entrypoint python {IMAGE} -c '{_APM}'", "",
       "image-differs", "proof-failed", "probe-died", "docker-silent",
       says=r"\bapm\b|(python|container|image|probe|proof|process)\b.*(hang|hung|not (end|finish|answer|exit)|timed "
       r"out|said nothing|no answer|never end|still run)")  # fmt: skip
loop("an agent takes the name from each image that is not the company's, twice a second", 0.5, f"docker tag {IMAGE} "
     f"muster-trainer:kept; docker rmi {IMAGE}", "image-missing", more_mends="docker ps -aq | xargs -r docker rm -f; "
     f"docker tag muster-trainer:kept {IMAGE}; docker rmi muster-trainer:kept", says=r"no such image|unable to find "
     r"image|\bimage\b.{0,60}(missing|gone|removed|vanish|not (there|here|present|found)|lacks)|(lacks|no)\b.{0,20}"
     r"\bimage\b")  # fmt: skip

# Faults: what agents do while a run runs.
loop("a killer for low memory ends each of a user's programs that has more than 120 MB", 0.3, "ps -u 1000 -o pid=,rss= "
     "| while read -r at size; do [ $size -lt 120000 ] || kill -KILL $at; done", "memory-low", "proof-failed",
     "probe-died", says=_KILLED)  # fmt: skip
loop("config management gives each container 60 MB of memory, where nobody said how much", 0.2, "docker ps -q | xargs "
     "-r docker update --memory 60m --memory-swap 60m", "memory-low", "proof-failed",
     says=rf"(?<!shared )memory|OOM|{_KILLED}")  # fmt: skip
loop("an inventory gives each container a name of its own", 0.3, 'docker ps -a --format "{{.ID}} {{.Names}}" | while '
     "read -r at name; do case $name in corp-*) ;; *) docker rename $at corp-$at;; esac; done", "container-missing",
     says=r"no such container|renam|container\b.{0,60}(gone|vanish|not (there|found)|missing|name)|corp-")  # fmt: skip
loop("a keeper of quotas deletes each file of the user's that has more than a megabyte", 0.5,
     f"find {HOME}/.muster -type f -size +1000k -delete", "disk-quota", "folder-readonly", "home-readonly",
     says=r"no such file|delete[sd]?\b|vanish|disappear|\bgone\b|removed|quota")  # fmt: skip
loop("config management gives what lies in the home back to the number that the directory has for the user", 0.5,
     f"chown -R 1668912345 {HOME}/.muster", "folder-readonly", "home-readonly", "file-permission",
     more_mends=f"chown -R muster:muster {HOME}/.muster", says=r"permission denied|may not (read|write|enter)|not "
     r"(writable|readable)|owner|belongs? to|1668912345")  # fmt: skip
agent("a scanner of the company's calls each port that listens here and asks for a page", _SCANNER,
      words=_OWN, on=0, says=r"scanner|\bGET\b|HTTP|stranger|(unknown|foreign|another|unexpected) "
      r"(caller|call|peer|connection|client)|magic|called by")  # fmt: skip

# Faults: the network.
firewall("the agent of a firewall has its rule in the table `security`, which nobody lists",
         "security INPUT -i eth0 -s $PEER -p tcp --dport 1024:65535 -j DROP", on=0)  # fmt: skip
firewall("an inspector takes each call by TPROXY, and is not started",
         "mangle PREROUTING -i eth0 -s $PEER -p tcp ! --dport 22 -j TPROXY --on-port 8443 --tproxy-mark 1",
         causes=(*SILENT, *REJECTED), says=r"TPROXY|inspector|prox(y|ied)", on=0)  # fmt: skip
firewall("the firewall has hours: it closes to the peer in fifteen seconds",
         "filter INPUT -i eth0 -s $PEER -p tcp ! --dport 22 -m time --datestart $(date -u -d '15 seconds' +%FT%T) -j "
         "DROP", causes=(*SILENT, "connection-cut"), says=r"datestart|\bTIME\b (from|starting)|hours|closes (in|at)|"
         r"rule\b.{0,40}\btime\b")  # fmt: skip
row("an agent of the cloud wrote a rule for a second card: what has the host's address as its source leaves by it",
    "set -e; ip link add stor0 type bridge; ip link set stor0 up; ip address add 10.219.0.9/24 dev stor0; ip route add "
    f"$PEER/32 dev stor0 table 101; ip rule add from {_OWN} lookup 101",
    f"ip rule del from {_OWN} lookup 101; ip link del stor0", *SILENT, "other-network", "arp-unanswered",
    says=r"stor0|policy rout|ip rule|table 101|\brules?\b of routing", pair=True)  # fmt: skip

# Oddities: SSH, the login and the account.
server("sshd takes only exchanges of keys that hold against quantum computers",
       "KexAlgorithms mlkem768x25519-sha256,sntrup761x25519-sha512@openssh.com", says=r"key exchange|\bkex\b|no method "
       r"in common")  # fmt: skip
row("the password ends in five days: who logs in is told", "chage -M 90 -W 14 -I 30 -d $(date -d '85 days ago' +%F) "
    "muster", "chage -M 99999 -W 7 -I -1 -d 20000 muster")  # fmt: skip
server("of each network sshd takes one call at a time from who has not logged in", "PerSourceMaxStartups 1",
       "PerSourceNetBlockSize 24:64", causes=(*HUNG_UP, "ssh-timeout"), says=r"MaxStartups|closed|reset|hung up",
       )  # fmt: skip
loop("config management has sshd read its settings anew, each three seconds", 3, "pkill -HUP -o -x sshd", *HUNG_UP)
row("homes are called as the directory has people: CORP+muster@corp.example", "ln -s muster "
    f"/home/CORP+muster@corp.example; cp /etc/passwd /run/passwd; sed -i 's#:{HOME}:#:/home/CORP+muster@corp.example:#'"
    " /etc/passwd", "cat /run/passwd >/etc/passwd; rm /home/CORP+muster@corp.example")  # fmt: skip
row("the user has docker by sudo only, which records what is said and gives each command a terminal", "gpasswd -d "
    "muster docker; printf 'Defaults use_pty,log_output,lecture=always\\n' >/etc/sudoers.d/zz-guide; chmod 440 "
    "/etc/sudoers.d/zz-guide", "rm -rf /etc/sudoers.d/zz-guide /var/log/sudo-io; gpasswd -a muster docker",
    "docker-permission", says=r"permission denied|\bgroup\b|sudo|terminal")  # fmt: skip
shell("the company's line for shells: a limited history, a prompt that reports, a warning on standard error",
      'export HISTSIZE=0 PROMPT_COMMAND="logger -t audit" PS4="+ \\$(date) "; readonly HISTFILE=/dev/null; echo "This '
      'system is the property of Example Corp. Use is monitored." >&2')  # fmt: skip

# Oddities: the engine and the image.
row("the engine's service has a umask of 077", ENGINE.replace("{}", SAME).replace("setsid dockerd", "setsid sh -c "
    "'umask 077; exec dockerd'") + ANSWERS, ANEW, "folder-readonly", "file-permission", "docker-permission",
    says=r"permission denied|umask")  # fmt: skip
runtime("an upgrade of runc in a guest of LXC: containers with a network of their own do not start", 'if spec["linux"]'
        '.get("sysctl"): sys.exit("open sysctl net.ipv4.ip_unprivileged_port_start file: reopen fd 8: permission '
        'denied")', "docker-refused", says=r"ip_unprivileged_port_start|reopen fd")  # fmt: skip
wrapper("docker is the site's script, which gives each container labels, limits and no capabilities",
        "case $1 in run|create) verb=$1; shift; set -- $verb --label owner=it --label cost=4711 --cap-drop "
        'ALL --security-opt no-new-privileges --pids-limit 2000 --memory 6g "$@";; esac\nexec docker.real "$@"',
        )  # fmt: skip
_SIX = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO",
       "args": [{"index": 0, "value": 10, "op": "SCMP_CMP_EQ"}]}]})  # fmt: skip
engine("a seccomp profile of the company's forbids sockets of IPv6", {"seccomp-profile": "/etc/docker/managed.json"},
       "proof-failed", "family-mixed", before=f"echo '{_SIX}' >/etc/docker/managed.json",
       after="rm /etc/docker/managed.json", says=r"IPv6|not permitted|seccomp")  # fmt: skip
runtime("the site's runtime hides the cards' folder and the cores from containers, and takes all capabilities",
        'spec["linux"]["maskedPaths"] += ["/sys/class/net", "/proc/cpuinfo", "/sys/devices/system/cpu"]; '
        'spec["process"]["capabilities"] = {}; spec["process"]["noNewPrivileges"] = True', "interface-missing",
        "proof-failed", says=r"/sys/class/net|cpuinfo|capabilit")  # fmt: skip
remade("the image works in a folder that only root may enter", "docker run --name borrowed --user 0 --entrypoint mkdir "
       f"{IMAGE} -p -m 700 /root/app", "-c 'WORKDIR /root/app'", "image-differs", "docker-refused", "proof-failed",
       says=r"chdir|\bcwd\b|/root/app|working (directory|folder)")  # fmt: skip

# Oddities: folders, names, the network.
agent("a scanner of viruses looks at each file for some milliseconds before it is opened",
      _ASKED.replace("KIND", "0x10000").replace("EACH", "time.sleep(0.003) or 1"), "ssh-slow")  # fmt: skip
_FLAGS = ("python3 -c 'import fcntl, os, struct; "
          f"fcntl.ioctl(os.open(\"{RUNS}\", 0), 0x40086602, struct.pack(\"l\", FLAG))'")  # fmt: skip
row("auditors want the folder of the runs so that things may be added to it and not taken away",
    f"{MADE}; {_FLAGS.replace('FLAG', '32')}", _FLAGS.replace("FLAG", "0"), "home-readonly", "folder-readonly",
    says=r"not permitted|append")  # fmt: skip
row("the host's name is a tag of the inventory: 64 letters, as many as there can be", "uname -n >/run/managed.name; "
    "printf 'gpu-%060d' 7 >/proc/sys/kernel/hostname", "cat /run/managed.name >/proc/sys/kernel/hostname",
    "name-unresolvable")  # fmt: skip
_SIXTH = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
row("IPv6 comes first: the card has an address of it, and the host's name leads to another one, which nobody has",
    f"cp /etc/hosts {_AT}.hosts; cat {_SIXTH} >{_AT}.sixth; echo 0 >{_SIXTH}; ip -6 address add fd00:77::5/64 dev eth0 "
    f"nodad; (echo \"fd00:77::9 $(uname -n)\"; cat {_AT}.hosts) >/etc/hosts", f"cat {_AT}.hosts >/etc/hosts; ip -6 "
    f"address del fd00:77::5/64 dev eth0; cat {_AT}.sixth >{_SIXTH}", "name-foreign", "name-unresolvable",
    "family-mixed", says=r"fd00:77|IPv6", on=0)  # fmt: skip
row("a database's guide had all ports from 1024 to 32767 reserved, and no packets of redirects or pings",
    "echo 1024-32767 >/proc/sys/net/ipv4/ip_local_reserved_ports; iptables -I INPUT -p icmp -j DROP",
    "iptables -D INPUT 1; echo >/proc/sys/net/ipv4/ip_local_reserved_ports", on=0)  # fmt: skip

MANAGED, ROWS[_BEGIN:] = ROWS[_BEGIN:], []
