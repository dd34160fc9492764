#!/bin/sh
# known RUN: the number that earlier runs had here, whose this run's folder is, and how many numbers there are.
. ./reading.sh
echo "kept $(head -c 12 "$HOME/.muster/uid" 2>/dev/null)"
[ -z "$1" ] || echo "owner $(enter "$1" && stat -c %u .)"
echo "mapped $(awk '$1 + $3 > most {most = $1 + $3} END {printf "%.0f", most}' /proc/self/uid_map 2>/dev/null)"
