#!/bin/sh
# look-folders NAME...: prints `at FOLDER` and `data FOLDER`, where this host keeps the folders of pushes and data; `free KILOBYTES`
# there; and for each NAME that exists (a digest, or data/DIGEST) a line `has NAME LISTING`.
. ./folders_function.sh
. ./listing_function.sh
place folders; echo "at $folders"
# A run without data creates no folder for data.
data=$(cd -P -- "$HOME/.muster/data" 2>/dev/null && env pwd -P) || data=$(cd -P -- "$HOME/.muster" && env pwd -P)/data
data=$data/$(uname -n)
echo "data $data"
df -Pk . 2>/dev/null | awk 'NR == 2 { print "free " $4 }'
for name; do
    case $name in data/*) at=$data/${name#data/} ;; *) at=$name ;; esac
    [ -L "$at" ] || [ ! -d "$at" ] || echo "has $name $(listing "$at")"
done
