#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install.sh SOURCE BUILD: installs BUILD into an empty folder, and has the example built and run
# against that. Exit status 77 (skip) without pkg-config, a C++ compiler, or a libc to link statically.
set -euo pipefail
source=$1
build=$2

for program in pkg-config cc c++ cmake readelf; do
    command -v "$program" >/dev/null || {
        echo "skipped: there is no $program"
        exit 77
    }
done

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root cmake --install "$build" >"$root/log" 2>&1 || {
    cat "$root/log"
    exit 1
}
bash "$(dirname "$0")/use_installed.sh" "$root" "$source/examples/trainer.c"

if [[ -n $(find "$build/docs/man" -name f8ctl.1 2>/dev/null) ]]; then
    for page in man1/f8ctl.1 man3/f8_close.3 man5/f8gatherd.conf.5 man7/f8client.7 man8/f8gatherd.8; do
        [[ -n $(find -L "$root" -path "*/man/$page" -size +0) ]] || { echo "NOT OK: $page is not installed"; exit 1; }
    done
    echo "ok: man pages"
fi
