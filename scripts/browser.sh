#!/usr/bin/env bash
# The browser test needs Chromium: from the distribution's packages, never a download of a browser build.
set -euo pipefail
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then exit 0; fi
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
echo "== installing chromium (Debian package) for the browser test"
as_root apt-get update -qq
as_root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
