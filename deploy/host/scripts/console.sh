#!/bin/sh
# console MARK OPTION...: `docker logs OPTION...` with a mark now and then. One who listens no more is noticed by a mark that
# cannot be written: nothing must stay there. It goes the other way than the lines, or it would stand in the middle of one.
mark=$1; shift
docker logs "$@" 2>&1 & console=$!
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
while kill -0 $console 2>/dev/null && echo "$mark" >&2; do sleep 1; done
wait $console
