#!/bin/sh
# run-limited MEMORY SECONDS SIZE COMMAND...: the command here, with at most that much memory of its own (kB), of the processor
# (s) and of each file that it writes (in blocks of 512 bytes).
# shellcheck disable=SC3045  # dash, bash and zsh have them, and so has macOS
ulimit -c 0
# shellcheck disable=SC3045
ulimit -d "$1"
# shellcheck disable=SC3045
ulimit -t "$2"
ulimit -f "$3"
shift 3
exec "$@"
