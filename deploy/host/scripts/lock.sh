#!/bin/sh
# lock DO TOKEN SILENCE: one deploy per host at a time. `take` reads the holder, a JSON line, and keeps the lock until its
# input ends or is silent for SILENCE seconds: each line of it is a beat. `show` says who holds the lock, `drop` takes it off
# where it has this token (or `any`), `sweep` where its keeper has died. docs/decisions/0024 says why it is done this way.
#
# flock makes each step one step where the host has it, so that two who clear a dead lock cannot clear a fresh one; mkdir
# alone decides where it has not. The folder bears the host's name, for homes that several hosts share.
umask 077; trap '' HUP PIPE; mkdir -p "$HOME/.muster" && cd "$HOME/.muster" || exit 1
lock=lock-$(uname -n); do=$1 token=$2
step() { if command -v flock >/dev/null; then exec 9>>"$lock.step" && flock -w 20 9 || exit 1; fi; }
holds() { cat "$lock/token" 2>/dev/null; }
dead() { [ -s "$lock/pid" ] && ! kill -0 "$(cat "$lock/pid")" 2>/dev/null; }
# A link that is cut ends no input: so silence does. `read` cannot wait for so long and no longer in every shell.
limit=$(command -v timeout) && limit="$limit $3"
heard() { [ -n "$({ $limit dd bs=1 count=1 | tr '\n' .; } 2>/dev/null)" ]; }
beat() { date +%s > "$lock/beat"; }
show() {
  [ -d "$lock" ] || return 0
  echo "$(($(date +%s) - $(cat "$lock/beat" 2>/dev/null || stat -c %Y "$lock")))"; holds || echo
  cat "$lock/holder" 2>/dev/null
}
drop() { if [ -d "$lock" ] && { [ "$token" = any ] || [ "$(holds)" = "$token" ]; }; then rm -rf "$lock"; fi; }
step
case $do in
show) show;;
drop) drop;;
sweep) if dead; then show; rm -rf "$lock"; fi;;
take)
  read -r holder || exit 1
  if dead; then rm -rf "$lock"; fi
  if mkdir "$lock" 2>/dev/null; then
    if ! { echo $$ > "$lock/pid" && beat && echo "$holder" > "$lock/holder" && echo "$token" > "$lock/token"; }; then
      rm -rf "$lock"; exit 1
    fi
    echo taken; exec 9>&-
    while heard && [ "$(holds)" = "$token" ]; do beat; done
    step; drop
  elif [ -d "$lock" ]; then show; else mkdir "$lock"; exit 1; fi;;
esac
exit 0
