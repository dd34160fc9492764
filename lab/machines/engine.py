"""Rows about container engines, their settings, their clients, and a site's wrappers. Faults first, then oddities."""

from lab.machines.row import (
    ANEW,
    ANSWERS,
    AT,
    ENGINE,
    HOME,
    IMAGE,
    KEEP,
    SAME,
    engine,
    loop,
    program,
    row,
    server,
    service,
    shell,
    wrapper,
)

row(
    "the first docker of PATH was copied from an ARM board",
    "printf "
    "'\\177ELF\\2\\1\\1\\0%8s\\2\\0\\267\\0\\1\\0\\0\\0%40s' | tr ' ' '\\0' >/usr/local/bin/docker; chmod 755 "
    "/usr/local/bin/docker",
    "rm /usr/local/bin/docker",
    "architecture-differs",
    says=r"exec format|cannot execute|not executable|\barm|aarch64|another (machine|architecture)",
)
server(
    "what a login starts says that this is an i686, as on a build box it did",
    'ForceCommand exec setarch i686 bash -c "$SSH_ORIGINAL_COMMAND"',
    causes=("architecture-differs",),
    says=r"\bi[36]86\b|32.?bit",
)
wrapper(
    "docker is the site's script, which takes the host's network from whoever asks for it",
    "n=$#; while [ $n -gt 0 ]; do at=$1; shift; n=$((n - 1)); if [ $skip ]; then skip=; else case $at in "
    '--net=host|--network=host) ;; --net|--network) skip=1;; *) set -- "$@" "$at";; esac; fi; done\n'
    'exec docker.real "$@"',
    "bridge-network",
    "docker-wrapped",
    "interface-missing",
    "interface-no-address",
    "other-network",
    "container-bridge",
    "endpoint-foreign",
    says=r"network of (its|their) own|bridge|namespace|172\.17\.|script|wrapper",
)
row(
    "the card is called docker-wan",
    f"{KEEP}; ip link set eth0 down; ip link set eth0 name docker-wan; ip link set "
    "docker-wan up; ip route add default via $via dev docker-wan",
    "read -r at via </run/lab.card; ip link set "
    "docker-wan down; ip link set docker-wan name eth0; ip link set eth0 up; ip route add default via $via dev eth0",
    "container-bridge",
    "interface-missing",
)
loop(
    "a janitor removes each container that does not run, each second",
    1,
    "docker container prune -f",
    "container-missing",
    says="no such container|removed|prune|vanish|disappear|gone",
)
loop(
    "an inventory gives each container a name of its own",
    0.3,
    'docker ps -a --format "{{.ID}} {{.Names}}" | while '
    "read -r at name; do case $name in corp-*) ;; *) docker rename $at corp-$at;; esac; done",
    "container-missing",
    says=r"no such container|renam|container\b.{0,60}(gone|vanish|not (there|found)|missing|name)|corp-",
)
shell("DOCKER_HOST leads to nobody", "export DOCKER_HOST=tcp://127.0.0.1:1", "docker-down", says="127.0.0.1:1")
row(
    "/var/run is a folder of its own, no longer a link to /run",
    "rm /var/run; mkdir /var/run",
    "rm -rf /var/run; ln -s /run /var/run",
    "docker-down",
    says="/var/run",
)
shell("PATH has no programs", "export PATH=/usr/local/gone", "docker-missing", says="not found|PATH")
shell(
    "docker is a function that calls podman",
    'docker() { podman "$@"; }; export -f docker',
    "docker-missing",
    "podman-command",
    says="podman",
)
row(
    "the group docker got another number while the engine ran",
    "groupmod -g 2999 docker",
    "groupmod -g $(stat -c %g /run/docker.sock) docker",
    "docker-permission",
    says=r"\bgroups?\b|permission denied",
)
row(
    "the user has docker by sudo only, and sudo wants a terminal",
    "gpasswd -d muster docker; printf 'Defaults "
    "requiretty\\n' >/etc/sudoers.d/zz-guide; chmod 440 /etc/sudoers.d/zz-guide",
    "rm /etc/sudoers.d/zz-guide; gpasswd -a muster docker",
    "docker-permission",
    says=r"\btty\b|terminal|permission denied|\bgroup\b|sudo",
)
shell("DOCKER_CONTENT_TRUST is set", "export DOCKER_CONTENT_TRUST=1", "docker-refused", says="trust|notary")
row(
    "/proc shows processes and nothing else, as in a hardened container",
    "mount -t proc -o subset=pid proc /proc",
    "umount /proc",
    "docker-refused",
    says=r"/proc\b",
)
row(
    "containerd stands still, dockerd does not",
    "kill -STOP $(pgrep -x containerd)",
    "kill -CONT $(pgrep -x containerd); sleep 5",
    "docker-silent",
    says=r"containerd|(container|docker|engine)\b.*(hang|hung|not (end|finish|start|answer)|timed out)",
)
# When it ends, the engine waits for the processes that it has started, so the waiting ones are ended first.
_WAITS = SAME.replace("{", '{"runtimes": {"nvidia": {"path": "/opt/waits"}}, "default-runtime": "nvidia", ', 1)
row(
    "NVIDIA's runtime waits for a driver that never answers",
    'printf \'#!/bin/sh\\ncase " $* " in *" create "*) '
    'exec sleep 1789;; esac\\nexec runc "$@"\\n\' >/opt/waits; chmod 755 /opt/waits; '
    f"{ENGINE.replace('{}', _WAITS)}{ANSWERS}",
    f"rm /opt/waits; for n in $(seq 15); do pkill -fx 'sleep 1789'; sleep 0.2; done; {ANEW}",
    "docker-silent",
    says=r"runtime|(container|docker|engine)\b.*(hang|hung|not (end|finish|start|answer)|timed out)",
)
program(
    "the GPUs were sold, the driver's programs are still there",
    "/usr/bin/nvidia-smi",
    "#!/bin/sh\necho 'No devices were found'\nexit 6",
    "gpu-driver",
    "gpu-lost",
    says=r"no devices|nvidia-smi",
)
program(
    "the GPU's driver was upgraded, the module in the kernel was not",
    "/usr/bin/nvidia-smi",
    "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18",
    "gpu-driver",
    "gpu-faulty",
    "gpu-lost",
    "gpu-runtime",
    says="NVML|mismatch|nvidia-smi|driver",
)
row(
    "the image names a card, and here that card leads to nobody",
    "docker tag muster-trainer:cpu muster-trainer:kept; "
    "at=$(docker create muster-trainer:cpu true); docker commit -c 'ENV GLOO_SOCKET_IFNAME=rent0' $at "
    "muster-trainer:cpu; docker rm $at; ip link add rent0 type bridge; ip link set rent0 up; "
    "ip address add 10.213.7.1/24 dev rent0",
    "ip link del rent0; docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept muster-trainer:cpu; "
    "docker rmi muster-trainer:kept; docker image prune -f",
    "image-differs",
    "other-network",
    "container-bridge",
    "interface-down",
    "settings-differ",
    says="rent0",
)
row(
    "the image was made anew as NVIDIA's are: its entrypoint prints a banner first",
    f"set -e; docker tag {IMAGE} "
    "muster-trainer:kept; docker run --name salvaged --user 0 --entrypoint sh "
    f"{IMAGE} -c 'printf \"#!/bin/sh\\necho ==== PyTorch ====\\necho WARNING: The NVIDIA Driver was not detected.\\n"
    "exec \\\"\\$@\\\"\\n\" >/opt/entrypoint.sh; chmod 755 /opt/entrypoint.sh'; docker commit -c 'USER muster' -c 'CMD "
    "[]' -c 'EXPOSE 8888 6006' -c 'STOPSIGNAL SIGINT' -c 'VOLUME /workspace' -c \"ENTRYPOINT $(docker image inspect -f "
    f"'{{{{json .Config.Entrypoint}}}}' {IMAGE} | sed 's#^.#[\"/opt/entrypoint.sh\",#')\" salvaged {IMAGE}; docker rm "
    "salvaged",
    f"docker ps -aq | xargs -r docker rm -f; docker tag muster-trainer:kept {IMAGE}; docker rmi "
    "muster-trainer:kept; docker image prune -f",
    "image-differs",
    says=r"entrypoint|banner|PyTorch ====",
)
engine(
    "docker's data root was moved, the images were not",
    {"data-root": "/var/lib/docker/moved"},
    "image-missing",
    after="rm -rf /var/lib/docker/moved",
    says="no such image|data.root",
)
row(
    "an upgrade made containerd's image store the default: the images are in the old one",
    ENGINE.replace("{}", SAME.replace("false", "true")) + ANSWERS,
    f"docker ps -aq | xargs -r docker rm -f; docker images -q | xargs -r docker rmi -f; {ANEW}",
    "image-missing",
    says=r"no such image|image store|snapshotter|\bimage\b.{0,40}\bnot (there|present|found)",
)
row(
    "docker's folder was moved by rsync -C, which leaves out what is called *.so",
    "find /var/lib/docker/overlay2 "
    f"-path '*/diff/*' -type f -name '*.so' >{AT}.so; perl -ne 'chomp; rename $_, \"$_.kept\"' {AT}.so",
    f"perl -ne 'chomp; rename \"$_.kept\", $_' {AT}.so",
    "image-without-python",
    "proof-failed",
    "image-differs",
    "probe-died",
    says=r"no module named|ImportError|shared object|\.so\b|\btorch\b|import",
)
service(
    "the engine's service is hardened: ProtectHome=read-only",
    "mount --bind /home /home; mount -o remount,bind,ro /home",
    "mount-closed",
    "mount-missing",
    "home-readonly",
    "folder-readonly",
    says=r"read-only|ProtectHome|may not write|not writable",
)
row(
    "PAM gives each user a /var/tmp of one's own",
    "set -e; mkdir -p /srv/kept; [ ! -e /var/tmp/muster-claims ] || mv "
    "/var/tmp/muster-claims /srv/kept/; mkdir -m 000 /var/tmp/inst; echo '/var/tmp /var/tmp/inst/ user root' "
    ">>/etc/security/namespace.conf; echo 'session required pam_namespace.so' >>/etc/pam.d/sshd",
    "sed -i '/pam_namespace/d' /etc/pam.d/sshd; sed -i '/inst. user root/d' /etc/security/namespace.conf; rm -rf "
    "/var/tmp/inst /var/tmp/muster-claims; mv /srv/kept/* /var/tmp/; rmdir /srv/kept",
    "mount-missing",
    says=r"does not see|/var/tmp|does not exist|namespace|polyinst",
)
service(
    "the engine's service is hardened: PrivateTmp=yes",
    "for at in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 none $at; done",
    "mount-missing",
    "mount-closed",
    says=r"/tmp\b|PrivateTmp|does not see|namespace",
)
row(
    "docker is a script that greets on standard output",
    "mv /usr/bin/docker /usr/bin/docker.real; printf "
    "'#!/bin/sh\\necho Welcome to the cluster.\\nexec docker.real \"$@\"\\n' >/usr/bin/docker; chmod 755 "
    "/usr/bin/docker",
    "mv /usr/bin/docker.real /usr/bin/docker",
    "podman-command",
    says="welcome|prints|output",
)
row(
    "a guard of the login node kills Pythons that compute",
    "setsid sh -c 'while sleep 0.5; do ps -u 1000 -o "
    "pid=,cputimes=,comm= | while read -r pid took name; do case $name in python*|pt_*) [ $took -lt 3 ] || kill -9 "
    "$pid;; esac; done; done' </dev/null >/dev/null 2>&1 & echo $! >/run/lab.pid",
    "pkill -KILL -s $(cat /run/lab.pid)",
    "proof-failed",
    says="kill|137|signal 9",
)
engine(
    "a seccomp profile forbids ftruncate",
    {"seccomp-profile": "/etc/docker/profile.json"},
    "proof-failed",
    before='echo \'{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["ftruncate"], "action": '
    '"SCMP_ACT_ERRNO"}]}\' >/etc/docker/profile.json',
    says="ftruncate|not permitted|shared memory",
)

row("the engine stands still", "pkill -STOP -x dockerd", "pkill -CONT -x dockerd", "docker-silent")
shell("the docker context is unknown", "export DOCKER_CONTEXT=cloud", "docker-down")
row(
    "the engine has no runtime",
    "which runc >/run/was; mv $(cat /run/was) /run/runc.kept",
    "mv /run/runc.kept $(cat /run/was)",
    "docker-refused",
)
row(
    "neither the image nor a Python is there",
    f"mv /usr/bin/python3 /usr/bin/python3.kept; docker tag {IMAGE} lab:saved; docker rmi {IMAGE}",
    f"mv /usr/bin/python3.kept /usr/bin/python3; docker tag lab:saved {IMAGE}; docker rmi lab:saved",
    "no-python",
)
row(
    "GPUs without their container toolkit",
    "at=/usr/local/bin/nvidia-smi; printf '%s\\n' '#!/bin/sh' "
    "'echo 0, GPU-5d5ba0d6, 412, 81920, 97, NVIDIA A100' >$at; chmod 755 $at",
    "rm /usr/local/bin/nvidia-smi",
    "gpu-runtime",
)

# Odd but healthy: a run trains.
row(
    "somebody deleted docker0 and emptied Docker's chains",
    "ip link del docker0; iptables -F FORWARD; iptables -t nat -F DOCKER",
    ANEW,
)
row(
    "the engine is a swarm of one",
    "docker swarm init --advertise-addr 127.0.0.1",
    "docker swarm leave -f; docker network rm docker_gwbridge",
)
row(
    "the image is not there yet",
    f"docker tag {IMAGE} lab:saved; docker rmi {IMAGE}",
    f"docker tag lab:saved {IMAGE}; docker rmi lab:saved",
)
row(
    "docker's settings of the user are broken",
    f"mkdir -p {HOME}/.docker; echo '{{' >{HOME}/.docker/config.json",
    f"rm -r {HOME}/.docker",
)
