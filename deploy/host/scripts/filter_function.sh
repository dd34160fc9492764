#!/bin/sh
# filter: the lines of standard input that $pattern finds, an extended regular expression; no line is no fault.
# timed: the same of lines that each come after their time, in which it is not looked for.
# shellcheck disable=SC2154  # the script that includes this sets $pattern
timed() { d=$(printf '\001') && LC_ALL=C sed -nuE "h;s/^[^ ]+ //;\\$d$pattern${d}{g;p}"; }
filter() { LC_ALL=C grep -aE --line-buffered -e "$pattern" || [ $? -eq 1 ]; }
