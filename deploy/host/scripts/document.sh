#!/bin/sh
# document RUN NAME PIECE: prints the first PIECE bytes of a file in a run's folder; nothing if it is not a plain file.
. ./reading.sh
read_at "$1" "$2" 0 "$3"
