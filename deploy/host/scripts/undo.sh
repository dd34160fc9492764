#!/bin/sh
# undo START FOLDER FRESH: removes only what the start with that label made: its container with the node's claim, and
# its folder if FRESH is not empty. First it removes the start's mark: a start that is still in progress then undoes
# itself. If there is no container with that label, the folder stays.
rm -f -- "$2=$1.starting"
containers=$(docker ps --all --quiet --no-trunc --filter "label=muster.start=$1") || exit
[ -n "$containers" ] || exit 0
# shellcheck disable=SC2086  # one word for each container
docker rm --force --volumes $containers >/dev/null || exit
token=${1%-*}
case $token in '' | *[!0-9a-f]*) ;; *) rm -f -- /var/tmp/muster-claims*/run-*-"$token"* ;; esac
[ -z "$3" ] || rm -rf -- "$2"
