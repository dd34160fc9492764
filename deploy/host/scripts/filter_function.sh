#!/bin/sh
# filter: prints the lines of standard input that match $pattern, an extended regular expression; finding none is no failure.
# timed: does the same for lines with a time in front, in which it does not search.
# shellcheck disable=SC2154  # the script that includes this sets $pattern
# The sed and grep of busybox cannot write each line immediately.
timed() {
    d=$(printf '\001') u=u && sed -nu p </dev/null 2>/dev/null || u=
    LC_ALL=C sed -n${u}E "h;s/^[^ ]+ //;\\$d$pattern${d}{g;p}"
}
filter() {
    now=--line-buffered && echo | grep -q $now '' 2>/dev/null || now=
    LC_ALL=C grep -aE $now -e "$pattern" || [ $? -eq 1 ]
}
