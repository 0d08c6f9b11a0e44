#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_kernels.sh NM F8BENCH F8GATHERD SOURCES: f8bench's checker judges the kernels, so nothing of
# kernels/ may be linked into f8bench, nor inlined from its headers. Every symbol of that room
# begins with f8k_; that nm shows them at all is seen from f8gatherd, which has them.
set -eu
nm=$1
if "$nm" "$2" | grep ' f8k_'; then
    echo "NOT OK: $2 links kernels/ (symbols above)"
    exit 1
fi
if ! "$nm" "$3" | grep -q ' f8k_'; then
    echo "NOT OK: nm shows no f8k_ symbols of $3 either: is it stripped?"
    exit 1
fi
if grep -rnE '#include +["<].*(kernels|fp8)\.h' "$4"; then
    echo "NOT OK: $4 includes headers of kernels/ (lines above)"
    exit 1
fi
echo "ok: no symbol of kernels/ in $2"
