#!/bin/sh
# A compose node: computes what a compose file cannot express, starts the agent, and makes its verdict final.
#   WORKERS          the number of workers: compose cannot add, and PET_NNODES is one more
#   MUSTER_WORKER    the beginning of a worker's name in Docker's DNS (`<project>-worker-`). All containers of a scaled
#                    service have the same environment, so each looks for the number whose name has its own address.
#                    (A reverse lookup of its address does not help: /etc/hosts answers with the container's id.)
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

# The restart policy brings back a lost node. But it cannot tell that from a run that was refused, stopped, or failed
# for a reason, where a restart would only fail again: such a node stores its exit code, and a restart only returns it.
last=/tmp/muster-last-words
[ ! -s "$last" ] || exit "$(cat "$last")"
: >"$last"

trap : TERM INT HUP # tini -g also signals the agent: wait for the agent's exit code
python -m muster.trainer.node agent "$@"
code=$?
for verdict in "${MUSTER_RUN_DIR:-/none}"/outcome/"$MUSTER_NODE"-*.json; do
    if [ "$code" = 2 ] || [ "$code" = 75 ] || [ -n "$(find "$verdict" -newer "$last" 2>/dev/null)" ]; then
        echo "$code" >"$last"
        break
    fi
done
exit "$code"
