#!/bin/sh
# delete RUN: removes a run's folder, and answers `deleted FILES KILOBYTES`. If one of our containers still has the folder,
# in any state, it answers `running` and removes nothing. A link, or a name that no run can have, counts as no folder.
. ./reading.sh
. ./ours.sh
containers=$(ours "$1") || exit
[ -z "$containers" ] || { echo running; exit; }
plain "$1" && [ ! -L "$runs/$1" ] && enter "$1" || { echo "deleted 0 0"; exit; }
files=$(find -P . -type f -exec printf '%.0sx' {} + | wc -c)
size=$(du -sk --apparent-size . 2>/dev/null || du -sk .)
cd -- "$runs" && rm -rf -- "./$1" || exit
echo "deleted $files ${size%%[!0-9]*}"
