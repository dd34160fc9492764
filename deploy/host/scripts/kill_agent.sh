#!/bin/sh
# kill-agent: kills the agent of a node with SIGKILL. It runs in the node's container, which ends with the agent.
for process in /proc/[0-9]*; do
    # The container's first process is the engine's own, which has started the agent.
    [ "$process" != /proc/1 ] || continue
    tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q 'trainer[.]node[.]agent' || continue
    echo killed
    kill -9 "${process#/proc/}"
done
