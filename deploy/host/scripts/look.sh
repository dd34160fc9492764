#!/bin/sh
# look PATIENCE SILENT COLUMNS: prints a host's facts for host/facts.py, and which parts (home, /var/tmp, engine) no run can use.
# The engine has PATIENCE seconds for each answer, because an engine that hangs would delay all hosts; without an answer, the text
# SILENT replaces it. Each program and each subshell costs a millisecond or two, so the shell itself does what it can.
patience=$1 silent=$2 columns=$3 limit= id=
. ./gpus_function.sh
newline='
'
! command -v timeout >/dev/null || limit="timeout $patience"
[ ! -r /etc/machine-id ] || read -r id </etc/machine-id
echo "time $(date +%s.%N)"; echo "machine $id $(uname -n)"
echo "home $HOME"; echo "ids $(id -u) $(id -g)"; echo "user $(id -un)"
echo "network $(readlink /proc/self/ns/net 2>/dev/null)"; echo "ssh $SSH_CONNECTION"; echo "arch $(uname -m)"; echo "cores $(nproc 2>/dev/null)"
while read -r name size _; do
    [ "$name" != MemTotal: ] || { echo "memory $size"; break; }
done </proc/meminfo
# Commands that a run's scripts call on every host: without one of them, a variable or a file would be lost silently.
lacks=
for command in awk base64 cut date dd df find grep head sed sort stat tail tr; do
    command -v "$command" >/dev/null || lacks="$lacks $command"
done
[ -z "$lacks" ] || echo "lacks$lacks"
# A folder that a driver has left behind does not count as a device.
[ ! -d /dev/infiniband ] || [ -z "$(find /dev/infiniband -type c 2>/dev/null | head -n 1)" ] || echo rdma
# Runs are stored below ~/.muster: the part of that path that exists must be writable.
for folder in "$HOME/.muster/runs" "$HOME/.muster"; do
    until [ -e "${folder:-/}" ] || [ -L "$folder" ]; do folder=${folder%/*}; done
    { [ -d "$folder" ] && [ -w "$folder" ] && [ -x "$folder" ]; } || {
        echo "home-readonly $folder"
        why=$(LC_ALL=C stat -- "$folder/." 2>&1 >/dev/null | head -n 1)
        # A folder that can be looked at shows why it is closed only when something is written. It is closed, so mkdir makes nothing.
        echo "home-words ${why:-$(LC_ALL=C mkdir -- "$folder/.muster-look" 2>&1 | head -n 1)}"
        break
    }
done
# The place of users' claims on GPUs (claims_function.sh): everybody may write there, and only root may change others' files.
[ -n "$(find /var/tmp/ -maxdepth 0 -user 0 -perm -1003 2>/dev/null)" ] || echo "claims-closed $(LC_ALL=C ls -ld /var/tmp/ 2>&1)"
case $(df -Pk /var/tmp/ 2>/dev/null | awk 'NR == 2 && $2 > 0 {print $4}') in
0) echo "claims-full /var/tmp" ;;
esac
# A user who may queue no signals (ulimit -i 0) gets no timer, and cannot wait for a lock.
! command -v flock >/dev/null || timer=$(exec 9</; LC_ALL=C flock -s -w 1 9 2>&1) || echo "no-timer $timer"
for folder in "$HOME/.muster/runs" "$HOME/.muster" "$HOME"; do
    [ -d "$folder" ] || continue
    # A file system that does not know its size, or makes inodes on demand, reports 0 of 0.
    df -Pk "$folder" | awk 'NR == 2 && $2 > 0 {print "room", $4}'
    df -Pi "$folder" 2>/dev/null | awk 'NR == 2 && $2 > 0 {print "inodes", $4}'
    break
done
# One GPU fault writes a line for each channel of each process, so only the first line of each kind is printed.
[ ! -e /proc/driver/nvidia/version ] ||
    { dmesg || $limit journalctl --quiet --dmesg --boot --no-pager; } 2>/dev/null | awk -F, '/NVRM: loading/ { split("", seen) }
        /NVRM: (Xid|loading)/ && !seen[substr($1, index($1, "NVRM"))]++ { print "kernel", $0 }'
gpus
# If a driver does not know one of these columns, it prints no number for it.
for column in driver_version compute_cap; do
    case $code in '' | 124) ;; *) ask --query-gpu=$column; printf '%s\n' "$answer" | sed "s/^/$column /" ;; esac
done
addresses=$(ip -j addr 2>/dev/null) || echo "no-iproute2 $(ip -j addr 2>&1 | tail -n 1)"
# Another command named `ip` may end with 0 and print something else.
case $addresses in '' | '['* | '{'*) ;; *)
    echo "no-iproute2 ${addresses##*"$newline"}"; addresses= ;;
esac
case $addresses in *"$newline"*) addresses=$(printf %s "$addresses" | tr -d '\n') ;; esac
echo "ip $(command -v ip)"
printf '%s\n' "addresses $addresses"
sed '1d; s/^/socket /' /proc/net/tcp /proc/net/tcp6 2>/dev/null
command -v docker >/dev/null || {
    at=
    for there in /snap/bin/docker /usr/local/bin/docker /usr/bin/docker; do
        [ ! -e "$there" ] || at=$there
    done
    [ -n "$at" ] || echo no-engine
    echo "engine-error docker: not found in PATH ($PATH)${at:+; but there is $at}"
    exit 0
}
# Each start of the client takes time, so one call reports everything if nothing is wrong. It also calls each plugin of the
# client, which a push has to do anyway.
about=$($limit docker info --format '{{.DockerRootDir}}
{{.SecurityOptions}}
{"Server":{"Version":{{json .ServerVersion}}}}' 2>/dev/null); informed=$?
case $informed$about in
    0/*'"Server":'*) engine=$about code=0 ;;
    *)
        [ "$informed" -ne 124 ] || limit=${limit% *}\ 3
        engine=$($limit docker version --format '{{json .}}' 2>&1); code=$?
        ;;
esac
[ -n "$engine" ] || [ "$code" -ne 124 ] || engine="$silent within $patience s"
# If the client goes to an engine other than this host's, print where, and which setting sends it there.
goes=${DOCKER_HOST:+DOCKER_HOST=$DOCKER_HOST}
: "${goes:=${DOCKER_CONTEXT:+DOCKER_CONTEXT=$DOCKER_CONTEXT}}"
settings=${DOCKER_CONFIG:-$HOME/.docker}/config.json
[ -n "$goes" ] || [ ! -r "$settings" ] || goes=$(sed -n 's/.*"currentContext": *"\([^"]*\)".*/context \1/p' "$settings")
case $goes in '' | *unix:///var/run/docker.sock | *unix:///run/docker.sock | *[\ =]default) ;; *) echo "engine-at $goes" ;; esac
# A client that crashes prints the reason above its stacks, or between them.
[ "$code" -eq 0 ] || {
    why=$(echo "$engine" | grep -m 1 -E 'pthread_create failed|new OS thread|newosproc') ||
        why=$(echo "$engine" | grep -m 1 -E '^(runtime: [^g]|fatal error: |panic: )') || why=$(echo "$engine" | tail -n 1)
    # If the output ends with a place to read more (in the messages of snap or WSL), the reason is above that.
    case $why in
        'See '* | http* | 'For more'*) why=$(echo "$engine" | grep -v -e '^{' -e '^ *$' | tail -n 4 | tr '\n' ' ') ;;
    esac
    socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
    [ -n "$why" ] || why="\`docker version\` ended with code $code and said nothing"
    [ ! -d "${socket#unix://}" ] || why="${socket#unix://} is a folder, not a socket: the engine cannot listen there"
    # An engine that we brought has lost its Python, for example when a rented box returns with another image: it is brought again.
    [ "$(command -v docker)" != "$HOME/.muster/bin/docker" ] || echo no-engine
    echo "engine-error $why"
    exit 0
}
# Podman's own command reports no server. A rootless engine of either kind reports that it is rootless.
case $engine in *'"Server":'*) ;; *) echo "engine-error this docker is Podman's own command"; exit 0 ;; esac
[ "$informed" -ne 124 ] || {
    echo "engine-error no answer within $patience s to \`docker info\`, but one to \`docker version\`: does a plugin of its client hang? ls ~/.docker/cli-plugins"
    exit 0
}
case $about in
    *name=rootless*) echo "engine-error this engine is rootless"; exit 0 ;;
    [!/]*) echo "engine-error this docker prints lines of its own: ${about%%"$newline"*}"; exit 0 ;;
esac
printf '%s\n' "engine ${engine##*"$newline"}"
case $about in *name=bare*) about_bare=${engine##*'"Version":"'}; echo "bare ${about_bare%%'"'*}" ;; esac
limits=/proc/$(pgrep -x 'dockerd|podman' | head -n 1)/limits
# If users cannot see the engine's process, only the login's own limit is sure to be granted.
[ -r "$limits" ] || limits=/proc/self/limits
sed -n 's/^Max open files *[^ ]* */files /p' "$limits" 2>/dev/null
# shellcheck disable=SC2012  # no run has a name of two lines; host/facts.py refuses one
ls "$HOME/.muster/runs" 2>/dev/null | sed 's/^/run /'
df -Pk "${about%%"$newline"*}" 2>/dev/null | awk 'NR == 2 {print "free", $4}'
. ./container_line.sh
# A container that disappears between the two commands is no fault. An engine that falls silent is one.
containers=$(docker ps --all --quiet --filter "label=muster.run") || exit
# shellcheck disable=SC2086  # one word for each container
[ -z "$containers" ] || docker inspect --format "container $container_line" $containers 2>/dev/null ||
    docker ps --quiet >/dev/null
