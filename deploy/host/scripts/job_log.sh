#!/bin/sh
# job-log RUN NAME PATTERN: what a file of the run's folder has now, `job.out` or `logs/rank-R.log`; with a pattern, only the
# lines that it finds.
run=$1 name=$2 pattern=$3
. ./reading.sh
. ./filter_function.sh
size=$(enter "$run" && files "$name" | cut -d ' ' -f 2)
[ -n "$size" ] || exit 1
if [ -n "$pattern" ]; then read_at "$run" "$name" 0 "$size" | filter; else read_at "$run" "$name" 0 "$size"; fi
