#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install.sh SOURCE BUILD: installs BUILD below a prefix that it was not configured for, in an empty
# folder: nothing may lie outside, and the example is built and run against that. Exit status 77 (skip) without pkg-config, a C++ compiler, or a libc to link statically.
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
DESTDIR=$root cmake --install "$build" --prefix /opt/f8 >"$root/log" 2>&1 || {
    cat "$root/log"
    exit 1
}

fail() {
    echo "NOT OK: $*"
    exit 1
}

outside=$(find "$root" -not -type d -not -path "$root/opt/f8/*" -not -path "$root/log")
[[ -z $outside ]] || fail "outside of the prefix: $outside"
grep -qx "ExecStart=/opt/f8/bin/f8gatherd" "$root"/opt/f8/lib/systemd/system/f8gatherd.service ||
    fail "f8gatherd.service starts another program than that of its prefix"
for file in f8gatherd/{operating.md,examples/trainer.c}; do
    [[ -s $root/opt/f8/share/doc/$file ]] || fail "share/doc/$file is not installed"
done
for file in bash-completion/completions/f8ctl zsh/site-functions/_f8ctl \
    fish/vendor_completions.d/f8ctl.fish; do
    [[ -s $root/opt/f8/share/$file ]] || fail "share/$file is not installed"
done
bash "$(dirname "$0")/use_installed.sh" "$root" "$source/examples/trainer.c"

if [[ -n $(find "$build/docs/man" -name f8ctl.1 2>/dev/null) ]]; then
    for page in man1/f8ctl.1 man3/f8_close.3 man5/f8gatherd.conf.5 man7/f8client.7 man8/f8gatherd.8; do
        [[ -n $(find -L "$root" -path "*/man/$page" -size +0) ]] ||
            fail "$page is not installed"
    done
    echo "ok: man pages"
fi
