#!/bin/sh
# look-folders NAME...: `at FOLDER` and `data FOLDER`, where the folders of pushes and data are; `free KILOBYTES` there; and for
# each NAME that is there (a digest, or data/DIGEST) a line `has NAME LISTING`.
. ./folders_function.sh
. ./listing_function.sh
place data; data=$folders; echo "data $data"
place folders; echo "at $folders"
df -Pk . 2>/dev/null | awk 'NR == 2 { print "free " $4 }'
for name; do
    case $name in data/*) at=$data/${name#data/} ;; *) at=$name ;; esac
    [ -L "$at" ] || [ ! -d "$at" ] || echo "has $name $(listing "$at")"
done
