#!/bin/sh
# Where the folders of pushes are. Hosts may share a home, but each removes what its own containers do not use: so each
# has a place of its own. Their names are digests (send/folder/content.py).
umask 077
folders=$HOME/.muster/folders/$(uname -n)
mkdir -p -- "$folders" && cd -P -- "$folders" && folders=$(env pwd -P) || exit
# in_use DIGEST: whether a container has it, or nobody can tell.
in_use() { containers=$(docker ps --all --quiet --filter "label=muster.folder=$1") || return 0; [ -n "$containers" ]; }
