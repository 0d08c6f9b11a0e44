#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# other_seed.sh CONFORMANCE SEED...: conformance must pass on vectors that make_delayed.py makes, and
# count as many cases as they have; no stored state may be left of its daemon.
set -eu
conformance=$1
shift
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TMPDIR=$work/tmp
export TMPDIR
mkdir "$TMPDIR"
for seed in "$@"; do
    mkdir "$work/$seed"
    python3 "$here/make_delayed.py" "$seed" "$work/$seed"
    "$conformance" "$work/$seed" | tee "$work/out"
    variants=$(sed -n 's/^kernel variants://p' "$work/out" | wc -w)
    # 36 steps: through each variant, and by 1, 2 and 3 ranks with places of two kinds.
    grep -qx "$((36 * (variants + 6))) passed, 0 failed" "$work/out"
    rmdir "$TMPDIR" # it is empty
    mkdir "$TMPDIR"
done
