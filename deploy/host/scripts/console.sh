#!/bin/sh
# console MARK OPTION...: `docker logs OPTION...`, and a mark every second. When the reader is gone, the mark cannot be
# written, and this script ends: nothing may stay on the host. The mark goes to standard error: on standard output it could
# land in the middle of a line.
mark=$1; shift
docker logs "$@" 2>&1 & console=$!
trap 'kill $console 2>/dev/null' EXIT; trap 'exit 0' HUP INT TERM PIPE
while kill -0 $console 2>/dev/null && echo "$mark" >&2; do sleep 1; done
wait $console
