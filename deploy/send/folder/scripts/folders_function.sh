#!/bin/sh
# Where the folders of pushes are, and data. Hosts may share a home, but each removes what its own containers do not use: so
# each has a place of its own. Their names are digests (send/folder/content.py), behind `data/` if they are of data.
umask 077
# place KIND: goes to the place of that kind, `folders` or `data`.
place() {
    folders=$HOME/.muster/$1/$(uname -n) kind=$1
    mkdir -p -- "$folders" && cd -P -- "$folders" && folders=$(env pwd -P) || exit
}
# in_use DIGEST: whether a container has it, or nobody can tell.
in_use() {
    label=muster.folder=$1; [ "$kind" = folders ] || label=muster.data.$1
    containers=$(docker ps --all --quiet --filter "label=$label") || return 0; [ -n "$containers" ]
}
