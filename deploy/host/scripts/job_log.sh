#!/bin/sh
# job-log RUN NAME PATTERN: prints the current content of a file in the run's folder, `job.out` or `logs/rank-R.log`; with a
# pattern, only matching lines.
run=$1 name=$2 pattern=$3
. ./reading.sh
. ./filter_function.sh
size=$(enter "$run" && files "$name" | cut -d ' ' -f 2)
[ -n "$size" ] || exit 1
if [ -n "$pattern" ]; then read_at "$run" "$name" 0 "$size" | filter; else read_at "$run" "$name" 0 "$size"; fi
