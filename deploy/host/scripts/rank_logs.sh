#!/bin/sh
# rank-logs: prints a line `RUN/logs/rank-N.log` for each rank's log of each run.
. ./reading.sh
[ -n "$runs" ] && cd -- "$runs" || exit 0
for run in *; do
    ! plain "$run" || (enter "$run" && files logs) | sed -nE "s,^(logs/rank-[0-9]+\.log) .*,$run/\1,p"
done
