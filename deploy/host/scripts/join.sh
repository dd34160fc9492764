#!/bin/sh
# join CONTAINER: starts the container of a node that has ended, and answers `started`. If others have its GPUs by now: a line
# `claim NUMBER JSON` for each living claim that names one of them; `overlay` if it needs a network that ended with it.
# While we hold the machine's lock, nobody else takes GPUs.
container=$1
. ./claims_function.sh
share_claims && exec 9<"$claims" && { flock -w 60 9 || ! command -v flock >/dev/null; } ||
    { echo "error: $claims cannot be locked: is it a folder that all users share?" >&2; exit 1; }
if docker inspect --format '{{json .Config.Env}}' "$container" | grep -q '"MUSTER_OVERLAY='; then echo overlay; exit; fi
gpus=$(docker inspect --format '{{index .Config.Labels "muster.gpus"}}' "$container") || exit
taken=$(claims 9>&- | while read -r claim; do
    for gpu in $(printf '%s' "$gpus" | tr , ' '); do
        case $claim in *"\"$gpu\""*) printf '%s\n' "$claim"; break ;; esac
    done
done)
if [ -n "$taken" ]; then printf '%s\n' "$taken"; exit; fi
docker start "$container" >/dev/null 9>&- && echo started
