#!/bin/sh
# holder PORT: prints who listens on a TCP port, if the login may know it, as a line `holder WORDS`: the container that publishes
# it; or the process and its container; or a run that claimed the port; or only the process's user.
# shellcheck disable=SC2086  # limit is a command and its argument
port=$1
said() { [ -z "$1" ] || { echo "holder $1"; exit 0; }; }
limit=$(command -v timeout) && limit="$limit 5"
named() { $limit docker ps --filter "$1" --format '{{.Names}} ({{.Image}})' 2>/dev/null | head -n 1; }
name=$(named "publish=$port"); said "${name:+container $name, which publishes it}"
for may in '' 'sudo -n'; do
    pid=$($limit $may ss -Hltnp "sport = :$port" 2>/dev/null | sed -n 's/.*pid=\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$pid" ] || continue
    id=$(grep -oE '[0-9a-f]{64}' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
    name=${id:+$(named "id=$id")}
    said "${name:+container $name, }$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-120) (pid $pid of $(stat -c %U "/proc/$pid"))"
done
name=$(named "label=muster.port=$port"); said "${name:+container $name, of a run}"
row=$(printf ':%04X' "$port")
user=$(awk -v port="$row" 'index($2, port) && $4 == "0A" {print $8; exit}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
[ -z "$user" ] || said "a process of $(getent passwd "$user" | cut -d: -f1 | grep . || echo "uid $user")"
