#!/bin/sh
# console OPTION...: `docker logs OPTION...` on one stream.
exec docker logs "$@" 2>&1
