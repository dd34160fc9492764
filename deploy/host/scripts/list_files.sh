#!/bin/sh
# list-files RUN MOST CACHE...: the first line is the content of sent.json, the second that of copies.json. Then comes a line
# `MODE SIZE TIME ./PATH` for each entry of the run's folder that is not a folder, the mode in hex. A folder with the name
# of a CACHE is such a line too; its content is left out. The last line is `end`.
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
