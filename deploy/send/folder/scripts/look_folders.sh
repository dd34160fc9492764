#!/bin/sh
# look-folders NAME...: `at FOLDER` and `data FOLDER`, where the folders of pushes and data are; `free KILOBYTES` there; and for
# each NAME that is there (a digest, or data/DIGEST) a line `has NAME LISTING`.
. ./folders_function.sh
. ./listing_function.sh
place folders; echo "at $folders"
# A run without data leaves no folder for it.
data=$(cd -P -- "$HOME/.muster/data" 2>/dev/null && env pwd -P) || data=$(cd -P -- "$HOME/.muster" && env pwd -P)/data
data=$data/$(uname -n)
echo "data $data"
df -Pk . 2>/dev/null | awk 'NR == 2 { print "free " $4 }'
for name; do
    case $name in data/*) at=$data/${name#data/} ;; *) at=$name ;; esac
    [ -L "$at" ] || [ ! -d "$at" ] || echo "has $name $(listing "$at")"
done
