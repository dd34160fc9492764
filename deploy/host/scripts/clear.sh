#!/bin/sh
# clear RUN: removes what the previous start wrote about its nodes. Their containers are gone; other files of the run stay.
. ./reading.sh
for part in nodes outcome ranks logs; do
    enter "$1" || exit 0
    if [ -L "$part" ] || [ ! -d "$part" ]; then rm -f -- "$part"; mkdir -- "$part" || exit; fi
    case $part in nodes | outcome)
        enter "$1/$part" && find -P . -maxdepth 1 -name '*.json' ! -type d -exec rm -f -- {} + ||
            { echo "$1/$part cannot be cleared" >&2; exit 1; } ;;
    esac
done
