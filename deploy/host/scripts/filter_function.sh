#!/bin/sh
# filter: the lines of standard input that $pattern finds, an extended regular expression; no line is no fault.
# shellcheck disable=SC2154  # the script that includes this sets $pattern
filter() { LC_ALL=C grep -aE --line-buffered -e "$pattern" || [ $? -eq 1 ]; }
