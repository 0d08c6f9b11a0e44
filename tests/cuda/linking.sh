#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# linking.sh NM READELF MODULE PROGRAM...: the CUDA module exports its one symbol and needs of
# shared libraries only libc's own: not the driver, NCCL, a CUDA runtime or libstdc++. The programs
# and libraries behind it name nothing of CUDA or NCCL.
set -eu
nm=$1
readelf=$2
module=$3
shift 3

# What a loader needs under sanitizers is theirs.
needed=$("$readelf" -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
echo "$module needs: $needed"
test -n "$needed" || { echo "NOT OK: readelf shows no library that it needs" >&2; exit 1; }
if echo "$needed" | grep -E 'libcuda|libcudart|libnccl|libstdc\+\+'; then
    echo "NOT OK: $module is linked to these" >&2
    exit 1
fi
exported=$("$nm" -D --defined-only "$module" | awk '{ print $3 }' | grep -v -E '^(__asan|__odr)' || true)
if [ "$exported" != f8_backend_module ]; then
    echo "NOT OK: $module exports $exported" >&2
    exit 1
fi
# That nm would show names of CUDA is seen from the module, which has the runtime in it.
"$nm" "$module" | grep -q ' cudaLaunchKernel' || {
    echo "NOT OK: nm shows no CUDA runtime in $module: is it stripped?" >&2
    exit 1
}
for program in "$@"; do
    if "$nm" -D "$program" | grep -E ' (cu[A-Z]|cuda[A-Z]|nccl[A-Z]|__cuda)'; then
        echo "NOT OK: $program names these of CUDA" >&2
        exit 1
    fi
done
echo "ok: $module exports f8_backend_module alone; no CUDA in" "$@"
