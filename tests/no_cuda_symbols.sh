#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_cuda_symbols.sh FILE...: programs and libraries that need no CUDA or NCCL library, and neither
# have nor want a symbol of one. The names of the driver's functions are there all the same, as
# strings in the client library: else the search is shown to be one that finds nothing.
set -eu
status=0
for file in "$@"; do
    if nm -D "$file" | grep -E ' (cu|cuda|nccl)[A-Z][A-Za-z0-9_]*'; then
        echo "$file: these are symbols of CUDA or NCCL" >&2
        status=1
    fi
    if readelf -d "$file" | grep -E 'NEEDED.*lib(cuda|cudart|nccl)'; then
        echo "$file: needs these libraries" >&2
        status=1
    fi
done
grep -q cuEventRecord "$1" || { echo "$1: does not know the driver" >&2; status=1; }
nm -D "$1" | grep -qE ' f8_set_device' || { echo "$1: nm shows no symbols" >&2; status=1; }
exit $status
