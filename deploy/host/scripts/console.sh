#!/bin/sh
# console MARK PATTERN OPTION...: runs `docker logs OPTION...`, and prints MARK every second. When the reader is gone, the mark
# cannot be written, and this script ends: nothing may stay on the host. The mark goes to standard error: on standard output it
# could end up in the middle of a line. With a pattern, only matching lines are printed.
mark=$1 pattern=$2; shift 2
. ./filter_function.sh
if [ -z "$pattern" ]; then docker logs "$@" 2>&1 & else docker logs "$@" 2>&1 | timed & fi
console=$!
# Kill both ends of the pipe: SSH gives each command a separate process group.
trap 'trap "" TERM; if [ -n "$pattern" ]; then kill 0; else kill $console; fi 2>/dev/null' EXIT
trap 'exit 0' HUP INT TERM PIPE
while kill -0 $console 2>/dev/null && echo "$mark" >&2; do sleep 1; done
wait $console
