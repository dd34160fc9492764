#!/bin/sh
# list-files RUN MOST: the first line is the content of sent.json, the second that of copies.json. Then comes a line
# `MODE SIZE TIME ./PATH`, with the mode in hex, for each entry of the run's folder except folders. The last line is `end`.
. ./reading.sh
enter "$1" || exit
for name in sent.json copies.json; do
    piece "$name" 0 "$2" | tr '\n\000' '  '
    echo
done
find -P . ! -type d -exec stat -c '%f %s %Y %n' -- {} + 2>/dev/null
echo end
