#!/bin/sh
# forget RUN [TOKEN...]: removes the marks of unfinished starts of a run, or of all runs, so that a start still in progress undoes
# itself (start.sh); also removes the claims of nodes with these tokens.
home=${HOME%/}/.muster/runs
if [ -n "$1" ]; then rm -f -- "$home/$1="*.starting; else rm -f -- "$home"/*.starting; fi
shift
for token; do
    case $token in '' | *[!0-9a-f]*) ;; *) rm -f -- /var/tmp/muster-claims*/run-*-"$token"* ;; esac
done
