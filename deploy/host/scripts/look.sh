#!/bin/sh
# look PATIENCE SILENT COLUMNS: what a host is, as host/facts.py reads it, and what of it (home, /var/tmp, engine) no run can use.
# The engine has PATIENCE seconds for each answer, because an engine that hangs would delay all hosts. If it gives none, the text
# SILENT stands for its answer. Each program and each subshell takes a host a millisecond or two: the shell does what it can.
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
# What the scripts of a run call on any host: without one of them a variable, or a file, would be lost without a word.
lacks=
for command in awk base64 cut date dd df find grep head sed sort stat tail tr; do
    command -v "$command" >/dev/null || lacks="$lacks $command"
done
[ -z "$lacks" ] || echo "lacks$lacks"
# A folder that a driver has left is none of its devices.
[ ! -d /dev/infiniband ] || [ -z "$(find /dev/infiniband -type c 2>/dev/null | head -n 1)" ] || echo rdma
# The files of runs go below ~/.muster: what there is of it, or the folder that it is to be made in, has to take them.
for folder in "$HOME/.muster/runs" "$HOME/.muster"; do
    until [ -e "${folder:-/}" ] || [ -L "$folder" ]; do folder=${folder%/*}; done
    { [ -d "$folder" ] && [ -w "$folder" ] && [ -x "$folder" ]; } || {
        echo "home-readonly $folder"
        why=$(LC_ALL=C stat -- "$folder/." 2>&1 >/dev/null | head -n 1)
        # What can be looked at says only to somebody who writes why it is closed. It is, so nothing is made.
        echo "home-words ${why:-$(LC_ALL=C mkdir -- "$folder/.muster-look" 2>&1 | head -n 1)}"
        break
    }
done
# Where users' claims on GPUs are (claims_function.sh): each may write there, and only root may change what is another's.
[ -n "$(find /var/tmp/ -maxdepth 0 -user 0 -perm -1003 2>/dev/null)" ] || echo "claims-closed $(LC_ALL=C ls -ld /var/tmp/ 2>&1)"
case $(df -Pk /var/tmp/ 2>/dev/null | awk 'NR == 2 && $2 > 0 {print $4}') in
0) echo "claims-full /var/tmp" ;;
esac
# Whoever may queue no signals (ulimit -i 0) gets no timer, and cannot wait for a lock.
! command -v flock >/dev/null || timer=$(exec 9</; LC_ALL=C flock -s -w 1 9 2>&1) || echo "no-timer $timer"
for folder in "$HOME/.muster/runs" "$HOME/.muster" "$HOME"; do
    [ -d "$folder" ] || continue
    # A file system that knows no sizes, or makes inodes as it needs them, says 0 of 0.
    df -Pk "$folder" | awk 'NR == 2 && $2 > 0 {print "room", $4}'
    df -Pi "$folder" 2>/dev/null | awk 'NR == 2 && $2 > 0 {print "inodes", $4}'
    break
done
# One fault of a GPU makes a line for each channel of each process, so the first of each kind counts.
[ ! -e /proc/driver/nvidia/version ] ||
    { dmesg || $limit journalctl --quiet --dmesg --boot --no-pager; } 2>/dev/null | awk -F, '/NVRM: loading/ { split("", seen) }
        /NVRM: (Xid|loading)/ && !seen[substr($1, index($1, "NVRM"))]++ { print "kernel", $0 }'
gpus
# A driver that does not know one of these columns prints no number for it.
for column in driver_version compute_cap; do
    case $code in '' | 124) ;; *) ask --query-gpu=$column; printf '%s\n' "$answer" | sed "s/^/$column /" ;; esac
done
addresses=$(ip -j addr 2>/dev/null) || echo "no-iproute2 $(ip -j addr 2>&1 | tail -n 1)"
# Another command of that name may end well, and say other things.
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
# Each start of the client takes its time, so one says all where nothing is wrong. It also asks each plugin of the client, and
# a push has to ask them.
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
# Where a client goes that does not go to the engine of this host, and who sends it there.
goes=${DOCKER_HOST:+DOCKER_HOST=$DOCKER_HOST}
: "${goes:=${DOCKER_CONTEXT:+DOCKER_CONTEXT=$DOCKER_CONTEXT}}"
settings=${DOCKER_CONFIG:-$HOME/.docker}/config.json
[ -n "$goes" ] || [ ! -r "$settings" ] || goes=$(sed -n 's/.*"currentContext": *"\([^"]*\)".*/context \1/p' "$settings")
case $goes in '' | *unix:///var/run/docker.sock | *unix:///run/docker.sock | *[\ =]default) ;; *) echo "engine-at $goes" ;; esac
# A client that crashes says why above its stacks, or between them.
[ "$code" -eq 0 ] || {
    why=$(echo "$engine" | grep -m 1 -E 'pthread_create failed|new OS thread|newosproc') ||
        why=$(echo "$engine" | grep -m 1 -E '^(runtime: [^g]|fatal error: |panic: )') || why=$(echo "$engine" | tail -n 1)
    # What ends in a place to read on (a snap's or WSL's words) says above it what is wrong.
    case $why in
        'See '* | http* | 'For more'*) why=$(echo "$engine" | grep -v -e '^{' -e '^ *$' | tail -n 4 | tr '\n' ' ') ;;
    esac
    socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
    [ -n "$why" ] || why="\`docker version\` ended with code $code and said nothing"
    [ ! -d "${socket#unix://}" ] || why="${socket#unix://} is a folder, not a socket: the engine cannot listen there"
    # An engine that we brought has lost its Python, as where a rented box comes back with another image: it is brought again.
    [ "$(command -v docker)" != "$HOME/.muster/bin/docker" ] || echo no-engine
    echo "engine-error $why"
    exit 0
}
# Podman's own command says nothing of a server. A rootless engine of either kind says what it is.
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
# Where users do not see the engine's process: more than the login may have is granted nowhere for sure.
[ -r "$limits" ] || limits=/proc/self/limits
sed -n 's/^Max open files *[^ ]* */files /p' "$limits" 2>/dev/null
# shellcheck disable=SC2012  # no run has a name of two lines; host/facts.py refuses one
ls "$HOME/.muster/runs" 2>/dev/null | sed 's/^/run /'
df -Pk "${about%%"$newline"*}" 2>/dev/null | awk 'NR == 2 {print "free", $4}'
. ./container_line.sh
# A container that disappears between the two commands is not a fault. An engine that goes silent is one.
containers=$(docker ps --all --quiet --filter "label=muster.run") || exit
# shellcheck disable=SC2086  # one word for each container
[ -z "$containers" ] || docker inspect --format "container $container_line" $containers 2>/dev/null ||
    docker ps --quiet >/dev/null
