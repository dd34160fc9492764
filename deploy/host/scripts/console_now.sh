#!/bin/sh
# console-now PATTERN OPTION...: runs `docker logs OPTION...` with one output stream; with a pattern, prints only matching lines.
pattern=$1; shift
. ./filter_function.sh
[ -n "$pattern" ] || exec docker logs "$@" 2>&1
docker logs "$@" 2>&1 | timed
