#!/bin/sh
# run-limited MEMORY SECONDS SIZE COMMAND...: run the command with limits: MEMORY kB of its own memory, SECONDS of processor time,
# and SIZE blocks of 512 bytes for each file that it writes.
# shellcheck disable=SC3045  # the shells dash, bash and zsh have these limits, on macOS too
ulimit -c 0
# shellcheck disable=SC3045
ulimit -d "$1"
# shellcheck disable=SC3045
ulimit -t "$2"
ulimit -f "$3"
shift 3
exec "$@"
