#!/bin/sh
# holder PORT: who listens on a TCP port, as far as we may know: a line `holder WORDS`. A container that publishes it; or the
# process, and the container that it is in; or a run that claimed the port; or only whose process it is.
port=$1
said() { [ -z "$1" ] || { echo "holder $1"; exit 0; }; }
limit=$(command -v timeout) && limit="$limit 5"
name=$($limit docker ps --filter "publish=$port" --format '{{.Names}} ({{.Image}})' 2>/dev/null | head -n 1)
said "${name:+container $name, which publishes it}"
listening=$($limit ss -Hltnp "sport = :$port" 2>/dev/null | head -n 1)
case $listening in *pid=*) ;; *) listening=$($limit sudo -n ss -Hltnp "sport = :$port" 2>/dev/null | head -n 1) ;; esac
pid=$(echo "$listening" | sed -n 's/.*pid=\([0-9]*\).*/\1/p')
# shellcheck disable=SC2086  # limit is a command and its argument
[ -z "$pid" ] || {
    id=$(grep -oE '[0-9a-f]{64}' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
    name=$([ -z "$id" ] || $limit docker ps --filter "id=$id" --format '{{.Names}} ({{.Image}})' 2>/dev/null)
    said "${name:+container $name, }$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-120) (pid $pid of $(stat -c %U "/proc/$pid"))"
}
name=$($limit docker ps --filter "label=muster.port=$port" --format '{{.Names}}, a run of {{.Label "muster.user"}}' 2>/dev/null | head -n 1)
said "${name:+container $name}"
row=$(printf ':%04X 0' "$port")
user=$(awk -v port="${row% 0}" 'index($2, port) && $4 == "0A" {print $8; exit}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
name=$($limit docker ps --filter network=host --format '{{.Names}}' 2>/dev/null | head -n 5 | tr '\n' ' ')
[ -z "$user" ] ||
    said "a process of $(getent passwd "$user" | cut -d: -f1 | grep . || echo "uid $user")${name:+, perhaps in a container on the network of the host: $name}"
