#!/bin/sh
# The picture of the report in the README: docs/pictures/report.sh runs/<id>  ->  docs/pictures/report.png
# Needs chromium (or CHROMIUM=its command). The height cuts the page below the step times.
set -eu
page="$(realpath "${1:?usage: docs/pictures/report.sh RUN_FOLDER}")/report.html"
[ -f "$page" ] || { echo "error: no report at $page" >&2; echo "hint: \`make up\` writes one at its end" >&2; exit 2; }
picture="$(dirname "$0")/report.png"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
"${CHROMIUM:-chromium}" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
  --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$profile" \
  --window-size=1200,"${HEIGHT:-1650}" --screenshot="$picture" "file://$page" >"$profile/log" 2>&1 || { cat "$profile/log" >&2; exit 1; }
ls -l "$picture"
