#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# abi.sh LIBRARY SOURCE [--write]: the ABI of the library is the one that client/libf8client.abi keeps:
# functions, structs, enums, by their debug information. After an addition of functions or values of
# enums --write keeps the new one; any other change breaks old programs and needs a new soname. Exit status 77 (skip)
# without abidiff, without debug information, or on another architecture than the kept one.
set -euo pipefail
library=$1
source=$2
kept=$source/client/libf8client.abi

skip() {
    echo "skipped: $1"
    exit 77
}

command -v abidiff >/dev/null || skip "there is no abidiff (Debian: abigail-tools)"
[[ $(uname -m) == x86_64 ]] || skip "the ABI that is kept is x86-64's"
readelf -S "$library" | grep -q '\.debug_info' || skip "$library has no debug information"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/headers"
cp "$source/client/f8client.h" "$source/client/f8types.h" "$source/proto/status.h" "$work/headers"
# What is in the headers only: abidiff itself overlooks changes of structs if it is to do that.
abidw --headers-dir "$work/headers" --drop-private-types --exported-interfaces-only \
    --no-comp-dir-path --no-show-locs --no-corpus-path --no-elf-needed --no-parameter-names \
    --no-write-default-sizes --out-file "$work/built.abi" "$library"
if [[ ${3-} == --write ]]; then
    cp "$work/built.abi" "$kept"
    exit
fi

# 0: the same; 4: a change; 8 besides: one that breaks old programs; 1, 2: abidiff cannot tell.
compare() {
    abidiff "$1" "$work/built.abi" >"$work/said" 2>&1
}

status=0
compare "$kept" || status=$?
if [[ $status -ne 0 ]]; then
    cat "$work/said"
    echo "functions and values of enums may be added; then keep that: $0 $library $source --write"
    echo "NOT OK: another ABI than that of $kept (abidiff ended with $status)"
    exit 1
fi

# A fault must be found, or the above says nothing: members that have moved, calls that are gone.
for plant in "s/name='f8_view' size-in-bits='960'/name='f8_view' size-in-bits='896'/" \
    "s/name='F8_WIRE_E5M2' value='18'/name='F8_WIRE_E5M2' value='19'/" \
    "s/f8_gather_test/f8_gather_tests/g"; do
    sed "$plant" "$kept" >"$work/planted.abi"
    ! cmp -s "$work/planted.abi" "$kept" || { echo "NOT OK: cannot plant $plant"; exit 1; }
    ! compare "$work/planted.abi" || { echo "NOT OK: not found: $plant"; exit 1; }
done
echo "ok: the ABI is the one that is kept"
