#!/bin/sh
# document RUN NAME PIECE: the first PIECE bytes of a file of a run's folder; nothing where it is no plain file.
. ./reading.sh
read_at "$1" "$2" 0 "$3"
