#!/bin/bash
# What boots on a rack node: firewall, dockerd, sshd. Runs at every start of its container, so `docker restart` is a
# reboot. A daemon that is killed stays down until then: a test of a dead engine wants it so.
#   STORE=classic|containerd    the engine's image store
#   CORES=1                     how many cores it says it has
#   AUTHORIZED_KEY=...          who may log in as muster
#   CLOSED_TO=ADDRESS           drop what comes straight from there: the machine that runs the rack
set -euo pipefail

# A container gets /sys and its cgroups read-only; an engine writes to both.
open_kernel_mounts() {
    local folder
    mount -o remount,rw /sys
    awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | while read -r folder; do
        mount -o remount,bind,rw "$folder"
    done
    # cgroup v2 hands controllers on only from a group without processes of its own (as in moby's hack/dind).
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir -p /sys/fs/cgroup/init
        xargs -rn1 </sys/fs/cgroup/cgroup.procs >/sys/fs/cgroup/init/cgroup.procs || true
        sed -e 's/ / +/g' -e 's/^/+/' </sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
    fi
}

# Done once: what is changed on a node later survives its reboot, as on any machine.
first_boot() {
    local containerd=false
    [ "$STORE" = classic ] || containerd=true
    mkdir -p /etc/docker /home/muster/.ssh
    printf '{"features": {"containerd-snapshotter": %s}, "log-level": "warn"}\n' "$containerd" >/etc/docker/daemon.json
    echo "$AUTHORIZED_KEY" >/home/muster/.ssh/authorized_keys
    chown -R muster:muster /home/muster/.ssh
    chmod -R go= /home/muster/.ssh
    # Last, for it says that all of this is done. No two nodes have the same keys, so none are in the image.
    ssh-keygen -A >/dev/null
}

# The engine first, for it stops its containers in good order.
shut_down() {
    pkill -x dockerd || true
    while pgrep -x dockerd >/dev/null; do sleep 0.1; done
    pkill -x sshd || true
    exit 0
}

open_kernel_mounts
# As a machine has it, for the interfaces that a run makes (--overlay).
mkdir -p /dev/net && { [ -c /dev/net/tun ] || mknod /dev/net/tun c 10 200; }
[ -f /etc/ssh/ssh_host_ed25519_key ] || first_boot
[ -z "${CLOSED_TO:-}" ] || iptables -I INPUT -s "$CLOSED_TO" -j DROP
mkdir -p /run/sshd
# Neither daemon shall know how the node was made: a user's shell would inherit it.
env -u AUTHORIZED_KEY dockerd &
# nproc believes OMP_NUM_THREADS.
env -u AUTHORIZED_KEY /usr/sbin/sshd -D -e -o "SetEnv=OMP_NUM_THREADS=$CORES" &
trap shut_down TERM INT
while true; do
    sleep infinity &
    wait $!
done
