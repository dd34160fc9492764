#!/bin/sh
# join CONTAINER: starts the container of a node that has ended, and prints `started`. If others have its GPUs now, prints instead
# a line `claim NUMBER TOKEN OWNER JSON` for each living claim with one of them; `overlay` if it needs a network that ended with
# it.
container=$1
. ./claims_function.sh
. ./claim_places_function.sh
if docker inspect --format '{{json .Config.Env}}' "$container" | grep -q '"MUSTER_OVERLAY='; then echo overlay; exit; fi
labels=$(docker inspect --format '{{index .Config.Labels "muster.claim"}} {{index .Config.Labels "muster.gpus"}}' "$container") || exit
token=${labels%% *}
# Its claim lives again before we look: whoever takes its GPUs after that sees the claim.
case $token in '' | *[!0-9a-f]*) ;; *) touch -c -- /var/tmp/muster-claims.*/run-*-"$token"*.lock ;; esac
taken=$(rivals "${labels#* }" "$token")
if [ -n "$taken" ]; then printf '%s\n' "$taken"; exit; fi
docker start "$container" >/dev/null && echo started
