#!/bin/sh
# lock DO TOKEN SILENCE: one deploy per host at a time. `take` reads the holder, a JSON line; it answers `taken`, or the output of
# `show` and a dot; it holds the lock until its input ends or is silent for SILENCE seconds; each further line is a beat. `show`
# prints the holder. `drop` removes the lock if it has this token (or with `any`), `sweep` if its process has died.
# docs/decisions/0139 gives the reasons.
#
# If the host has flock, it makes each step atomic: if two scripts clear a dead lock, neither can clear a fresh one. Otherwise
# mkdir alone decides. The folder's name contains the host's name, because hosts may share a home.
umask 077; trap '' HUP PIPE; mkdir -p "$HOME/.muster" && cd "$HOME/.muster" || exit 1
lock=lock-$(uname -n); do=$1 token=$2
step() { if command -v flock >/dev/null; then exec 9>>"$lock.step" && flock -w 20 9 || exit 1; fi; }
holds() { cat "$lock/token" 2>/dev/null; }
dead() { [ -s "$lock/pid" ] && ! kill -0 "$(cat "$lock/pid")" 2>/dev/null; }
# A cut link does not end the input, so silence has to. In some shells, `read` has no time limit.
limit=$(command -v timeout) && limit="$limit $3"
heard() { [ -n "$({ $limit dd bs=1 count=1 | tr '\n' .; } 2>/dev/null)" ]; }
# Renamed into place, so that no reader finds the file empty; after a power loss it may still be empty.
beat() { date +%s > "$lock/beat.new" && mv -f "$lock/beat.new" "$lock/beat"; }
show() {
  [ -d "$lock" ] || return 0
  last=$(cat "$lock/beat" 2>/dev/null)
  case $last in ''|*[!0-9]*) last=$(stat -c %Y "$lock");; esac
  echo "$(($(date +%s) - last))"; holds || echo
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
  elif [ -d "$lock" ]; then show; printf '\n.\n'; else mkdir "$lock"; exit 1; fi;;
esac
exit 0
