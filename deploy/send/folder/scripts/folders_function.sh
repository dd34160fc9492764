#!/bin/sh
# Where a host keeps the folders of pushes, and data. Hosts may share a home directory, but each removes what its own containers do
# not use: so each host has its own place. The folders are named by their digests (send/folder/content.py); data: `data/DIGEST`.
umask 077
# place KIND: change to the directory of that kind, `folders` or `data`.
place() {
    folders=$HOME/.muster/$1/$(uname -n) kind=$1
    mkdir -p -- "$folders" && cd -P -- "$folders" && folders=$(env pwd -P) || exit
}
# in_use DIGEST: true if a container uses the folder, or if Docker cannot be asked.
in_use() {
    label=muster.folder=$1; [ "$kind" = folders ] || label=muster.data.$1
    containers=$(docker ps --all --quiet --filter "label=$label") || return 0; [ -n "$containers" ]
}
