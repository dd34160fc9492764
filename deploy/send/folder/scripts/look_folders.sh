#!/bin/sh
# look-folders DIGEST...: `at FOLDER`, where the folders of pushes are; `free KILOBYTES` there; and for each DIGEST that is
# there a line `has DIGEST LISTING`.
. ./folders_function.sh
. ./listing_function.sh
echo "at $folders"
df -Pk . 2>/dev/null | awk 'NR == 2 { print "free " $4 }'
for digest; do
    [ -L "$digest" ] || [ ! -d "$digest" ] || echo "has $digest $(listing "$digest")"
done
