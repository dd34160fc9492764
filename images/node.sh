#!/bin/sh
# A compose node: works out what a compose file cannot say, starts the agent, and makes its verdict final.
#   WORKERS          how many workers there are: compose cannot add, and PET_NNODES is one more
#   MUSTER_WORKER    how Docker's DNS begins a worker's name (`<project>-worker-`); a scaled service has one
#                    environment for all its containers, so each looks for the number that has its own address.
#                    (Asking for the name of its own address does not help: /etc/hosts answers with the container's id.)
set -u
export PET_NNODES=$((1 + WORKERS))

number=1
while [ -z "${MUSTER_NODE:-}" ] && [ "$number" -le "$WORKERS" ]; do
    case " $(hostname -i) " in
    *" $(getent hosts "$MUSTER_WORKER$number" | cut -d' ' -f1) "*) MUSTER_NODE=worker-$number ;;
    esac
    number=$((number + 1))
done
export MUSTER_NODE="${MUSTER_NODE:-$(hostname)}"

# The restart policy brings back a node that was lost, but cannot tell that from a run that was refused, stopped or
# failed with a reason, where the same would only happen again: such a node leaves its code behind and repeats it.
last=/tmp/muster-last-words
[ ! -s "$last" ] || exit "$(cat "$last")"
: >"$last"

trap : TERM INT HUP # tini -g tells the agent too; its code is still to come
python -m muster.trainer.node agent "$@"
code=$?
for verdict in "${MUSTER_RUN_DIR:-/none}"/outcome/"$MUSTER_NODE"-*.json; do
    if [ "$code" = 2 ] || [ "$code" = 75 ] || [ -n "$(find "$verdict" -newer "$last" 2>/dev/null)" ]; then
        echo "$code" >"$last"
        break
    fi
done
exit "$code"
