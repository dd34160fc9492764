#!/bin/sh
# remove RUN: removes our containers of a run, or of all; those of other users are named. First goes what a start that was
# cut left, or one that still goes on has.
. ./ours.sh
if [ -n "$1" ]; then rm -f -- "$home/$1="*.starting; else rm -f -- "$home"/*.starting; fi
found=$(ours "$1") || exit
# shellcheck disable=SC2086  # one word for each container
[ -z "$found" ] || docker rm --force --volumes $found >/dev/null || exit
printf 'removed %s\n' "$(printf '%s' "$found" | grep -c .)"
docker ps --all --filter "label=muster.run${1:+=$1}" --filter label=muster.node \
    --format 'left [{{json (.Label "muster.run")}},{{json (.Label "muster.user")}}]'
