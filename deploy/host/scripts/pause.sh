#!/bin/sh
# pause CONTAINER SECONDS: pauses a container. After SECONDS this host ends the pause by itself, whatever became of us.
name=$1 seconds=$2
(trap '' HUP; sleep "$seconds"; exec docker unpause "$name") </dev/null >/dev/null 2>&1 &
# An engine may fail to freeze a container that is busy.
for try in 1 2 3 4; do ! docker pause "$name" >/dev/null 2>&1 || exit 0; sleep 0."$try"; done
exec docker pause "$name"
