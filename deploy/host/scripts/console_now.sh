#!/bin/sh
# console-now PATTERN OPTION...: `docker logs OPTION...` on one stream; with a pattern, the lines that it finds.
pattern=$1; shift
. ./filter_function.sh
[ -n "$pattern" ] || exec docker logs "$@" 2>&1
docker logs "$@" 2>&1 | timed
