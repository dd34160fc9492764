#!/bin/sh
umask 077; trap '' HUP PIPE; mkdir -p "$HOME/.muster" && cd "$HOME/.muster" || exit 1
lock=lock-$(uname -n); do=$1; token=$2
step() { if command -v flock >/dev/null; then exec 9>>"$lock.step" && flock -w 20 9 || exit 1; fi; }
holds() { cat "$lock/token" 2>/dev/null; }
dead() { [ -s "$lock/pid" ] && ! kill -0 "$(cat "$lock/pid")" 2>/dev/null; }
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
    while read -r _ && [ "$(holds)" = "$token" ]; do beat; done
    step; drop
  elif [ -d "$lock" ]; then show; else mkdir "$lock"; exit 1; fi;;
esac
exit 0
