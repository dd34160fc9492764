#!/bin/sh
# run-limited MEMORY SECONDS SIZE COMMAND...: the command here, with at most that much memory of its own (kB), of the processor
# (s) and of each file that it writes (in blocks of 512 bytes).
ulimit -c 0
ulimit -d "$1"
ulimit -t "$2"
ulimit -f "$3"
shift 3
exec "$@"
