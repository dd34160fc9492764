#!/bin/sh
# list-files RUN MOST CACHE...: first what sent.json says, in a line, and copies.json, in another; then each file of the run's folder, and whatever else is
# no folder, as `MODE SIZE TIME ./PATH`, the mode in hex. A folder with the name of a CACHE is such a line too, and what is
# in it is none. The last line is `end`.
. ./reading.sh
enter "$1" || exit
for name in sent.json copies.json; do
    piece "$name" 0 "$2" | tr '\n\000' '  '
    echo
done
shift 2
caches='-name /'
for name; do caches="$caches -o -name $name"; done
# shellcheck disable=SC2086  # words of find
find -P . \( -type d \( $caches \) -prune -o ! -type d \) -exec stat -c '%f %s %Y %n' -- {} + 2>/dev/null
echo end
