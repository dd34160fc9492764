#!/bin/sh
# use-data data/DIGEST: notes that a run gets this data now. Fails if it is not there.
. ./folders_function.sh
place data
[ ! -L "${1#data/}" ] && [ -d "${1#data/}" ] && touch -- "./${1#data/}"
