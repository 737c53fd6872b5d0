#!/usr/bin/env bash
# Tries and measures Gyre on the GPUs of this machine, and writes a table in Markdown. With Gyre and torch's build for
# the GPUs installed, and `gyre` in PATH:
#
#     tools/device_check.sh > docs/performance/devices-$(date +%F).md
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/device_check.py" "$@"
