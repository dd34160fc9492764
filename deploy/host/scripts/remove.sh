#!/bin/sh
# remove RUN: removes our containers of a run, or of all runs, and names those of other users. First it removes the marks
# of unfinished starts, so that a start that still goes on undoes itself (start.sh).
. ./ours.sh
if [ -n "$1" ]; then rm -f -- "$home/$1="*.starting; else rm -f -- "$home"/*.starting; fi
containers=$(ours "$1") || exit
# shellcheck disable=SC2086  # one word for each container
[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null || exit
printf 'removed %s\n' "$(printf '%s' "$containers" | grep -c .)"
docker ps --all --filter "label=muster.run${1:+=$1}" --filter label=muster.node \
    --format 'left [{{json (.Label "muster.run")}},{{json (.Label "muster.user")}}]'
