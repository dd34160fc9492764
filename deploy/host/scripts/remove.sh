#!/bin/sh
# remove RUN: removes our containers of a run, or of all runs, and names those of other users. First it removes the marks
# of unfinished starts, so that a start that still goes on undoes itself (start.sh). The claims of the containers and the ends of
# their network (--overlay) go with them.
. ./ours.sh
if [ -n "$1" ]; then rm -f -- "$home/$1="*.starting; else rm -f -- "$home"/*.starting; fi
containers=$(ours "$1") || exit
# shellcheck disable=SC2086  # one word for each container
tokens=$([ -z "$containers" ] || docker inspect --format '{{index .Config.Labels "muster.claim"}}' $containers 2>/dev/null)
# shellcheck disable=SC2086
[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null || exit
for token in $tokens; do
    case $token in '' | *[!0-9a-f]*) continue ;; esac
    rm -f -- /var/tmp/muster-claims*/run-*-"$token"*
    # The end of the run's own network would go by itself, some seconds later.
    docker ps --all --quiet --no-trunc --filter "label=muster.overlay=$token" | xargs -r docker rm --force --volumes >/dev/null
done
printf 'removed %s\n' "$(printf '%s' "$containers" | grep -c .)"
docker ps --all --filter "label=muster.run${1:+=$1}" --filter label=muster.node \
    --format 'left [{{json (.Label "muster.run")}},{{json (.Label "muster.user")}}]'
