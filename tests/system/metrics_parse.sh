#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# metrics_parse.sh F8GATHERD F8CTL F8BENCH http|none CACHE: the metrics of a running daemon, read by the
# parser of Prometheus' own Python client. That comes from the Python package index, once, into a
# virtual environment in the folder CACHE. Exit 77 where the index is out of reach, and only there.
set -euo pipefail
f8gatherd=$1
f8ctl=$2
f8bench=$3
http=$4
cache=$5
package=prometheus_client==0.26.0

skip() {
    echo "skipped: $1"
    exit 77
}

# install: the environment into the cache, whole or not at all. It may not be moved: its place is
# in it, so it is marked as complete instead.
install() {
    python3 -m venv --clear "$cache" # fails with what to install
    if ! "$cache/bin/python3" -m pip install --progress-bar off --disable-pip-version-check \
        "$package" >"$cache/log" 2>&1; then
        # "none": pip saw no version at all, which is how it tells of an index that it cannot reach
        grep -Eq 'connection broken|from versions: none|Network|timed out' "$cache/log" &&
            skip "the package index is out of reach: $(tail -n 1 "$cache/log")"
        cat "$cache/log"
        exit 1
    fi
    touch "$cache/complete"
}

mkdir -p "$(dirname "$cache")"
exec 9>"$cache.lock"
flock 9 # several presets share it
[ -f "$cache/complete" ] || install
flock -u 9
exec "$cache/bin/python3" "$(dirname "$0")/metrics_parse.py" "$f8gatherd" "$f8ctl" "$f8bench" "$http"
