#!/bin/sh
# audit: appends a line of standard input, `TIME TEXT`, to the log. The host itself adds who logged in and from where: its
# user, and the address that its SSH server saw.
umask 077; mkdir -p "$HOME/.muster" && read -r time rest &&
printf '%s %s from %s: %s\n' "$time" "$(id -un)" "${SSH_CONNECTION%% *}" "$rest" >> "$HOME/.muster/audit.log"
