#!/bin/sh
# filter: the lines of standard input that $pattern finds, an extended regular expression; no line is no fault.
# timed: the same of lines that each come after their time, in which it is not looked for.
# shellcheck disable=SC2154  # the script that includes this sets $pattern
# Those of busybox cannot write each line at once.
timed() {
    d=$(printf '\001') u=u && sed -nu p </dev/null 2>/dev/null || u=
    LC_ALL=C sed -n${u}E "h;s/^[^ ]+ //;\\$d$pattern${d}{g;p}"
}
filter() {
    now=--line-buffered && echo | grep -q $now '' 2>/dev/null || now=
    LC_ALL=C grep -aE $now -e "$pattern" || [ $? -eq 1 ]
}
