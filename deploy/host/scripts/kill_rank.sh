#!/bin/sh
# kill-rank PID: kills a process with SIGKILL. It runs in the node's container.
kill -9 "$1" && echo killed
