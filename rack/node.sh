#!/bin/bash
# Boots a rack node: firewall, dockerd, sshd. It runs at every start of the container, so `docker restart` is a reboot.
# A daemon that is killed stays down until then, as tests of a dead engine need it.
#   STORE=classic|containerd    the engine's image store
#   CORES=1                     the number of cores that the node reports
#   AUTHORIZED_KEY=...          who may log in as muster
#   CLOSED_TO=ADDRESS           drop packets that come directly from this address: the machine that runs the rack
set -euo pipefail

# A container has /sys and its cgroups read-only, but an engine writes to both.
open_kernel_mounts() {
    local folder
    mount -o remount,rw /sys
    awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | while read -r folder; do
        mount -o remount,bind,rw "$folder"
    done
    # In cgroup v2, only a group without processes of its own can pass controllers on (as in moby's hack/dind).
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir -p /sys/fs/cgroup/init
        xargs -rn1 </sys/fs/cgroup/cgroup.procs >/sys/fs/cgroup/init/cgroup.procs || true
        sed -e 's/ / +/g' -e 's/^/+/' </sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
    fi
}

# Runs only once: later changes on a node survive its reboot, as on any machine.
first_boot() {
    local containerd=false
    [ "$STORE" = classic ] || containerd=true
    mkdir -p /etc/docker /home/muster/.ssh
    printf '{"features": {"containerd-snapshotter": %s}, "log-level": "warn"}\n' "$containerd" >/etc/docker/daemon.json
    echo "$AUTHORIZED_KEY" >/home/muster/.ssh/authorized_keys
    chown -R muster:muster /home/muster/.ssh
    chmod -R go= /home/muster/.ssh
    # Last, because these keys show that all of this is done. Every node needs its own keys, so none are in the image.
    ssh-keygen -A >/dev/null
}

# The engine first, because it stops its containers gracefully.
shut_down() {
    pkill -x dockerd || true
    while pgrep -x dockerd >/dev/null; do sleep 0.1; done
    pkill -x sshd || true
    exit 0
}

open_kernel_mounts
# Every real machine has this device; a run needs it for its own network interfaces (--overlay).
mkdir -p /dev/net && { [ -c /dev/net/tun ] || mknod /dev/net/tun c 10 200; }
[ -f /etc/ssh/ssh_host_ed25519_key ] || first_boot
[ -z "${CLOSED_TO:-}" ] || iptables -I INPUT -s "$CLOSED_TO" -j DROP
mkdir -p /run/sshd
# Neither daemon gets the variables that made the node: a user's shell would inherit them.
env -u AUTHORIZED_KEY dockerd &
# nproc prints the value of OMP_NUM_THREADS.
env -u AUTHORIZED_KEY /usr/sbin/sshd -D -e -o "SetEnv=OMP_NUM_THREADS=$CORES" &
trap shut_down TERM INT
while true; do
    sleep infinity &
    wait $!
done
