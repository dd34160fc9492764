#!/bin/sh
# delete RUN: removes a run's folder, and prints `deleted FILES KILOBYTES`. A link, or a name that no run can have, counts as no
# folder.
. ./reading.sh
plain "$1" && [ ! -L "$runs/$1" ] && enter "$1" || { echo "deleted 0 0"; exit; }
files=$(find -P . -type f -exec printf '%.0sx' {} + | wc -c)
size=$(du -sk --apparent-size . 2>/dev/null || du -sk .)
cd -- "$runs" && rm -rf -- "./$1" || exit
echo "deleted $files ${size%%[!0-9]*}"
