#!/bin/sh
# The pictures of pages in the README: docs/pictures/report.sh runs/<id>  ->  docs/pictures/report.png
#   muster preflight a,b --html preflight.html; HEIGHT=1200 docs/pictures/report.sh preflight.html  ->  .../preflight.png
# Needs chromium (or CHROMIUM=its command). The height cuts the page below the step times.
set -eu
page="$(realpath "${1:?usage: docs/pictures/report.sh RUN_FOLDER|PAGE}")"
[ ! -d "$page" ] || page="$page/report.html"
[ -f "$page" ] || { echo "error: no report at $page" >&2; echo "hint: a run writes one at its end" >&2; exit 2; }
picture="$(dirname "$0")/$(basename "$page" .html).png"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
"${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
  --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$profile" \
  --window-size=1200,"${HEIGHT:-1650}" --screenshot="$picture" "file://$page" >"$profile/log" 2>&1 || { cat "$profile/log" >&2; exit 1; }
ls -l "$picture"
