#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_modes.sh F8BENCH F8GATHERD LIBRARIES: f8bench on simulated devices in the ways that it knows,
# each against a daemon of its own; every gathered byte is checked. Where a difference is planted it
# must be found.
set -eu
bench=$1
daemon=$2
export LD_LIBRARY_PATH="$3" CUDASIM_DEVICES=2
failed=0
number=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# way LAST_LINE [OPTION]...
way() {
    last=$1
    shift
    number=$((number + 1))
    export CUDASIM_SEED=$number
    "$bench" run --daemon "$daemon" --device cuda --model tiny --steps 2 "$@" >"$log" 2>&1 || true
    if tail -n 1 "$log" | grep -qF "f8bench: $last" && grep -q '^on simulated GPU' "$log"; then
        return
    fi
    echo "f8bench run --device cuda $*, seed $number:" >&2
    cat "$log" >&2
    failed=1
}

found="FAILED (a difference was planted, and found)"
way OK --ranks 1 --dtype float16 --power-of-two
way OK --ranks 2 --devices 0
way OK --ranks 2 --devices 1,0 --no-precompute --dtype float32
way OK --ranks 3 --flavour static --fp8 e5m2
way "$found" --ranks 2 --plant byte
way "$found" --ranks 2 --plant scale
export CUDASIM_DELAY_US=200
way OK --ranks 4
way OK --ranks 2 --cuda-memory vmm --slots 2 --pre-gather
way OK --ranks 4 --slots 2 --pre-gather --no-precompute
way OK --ranks 4 --flavour delayed
way OK --mesh dp=2,tp=2
way OK --mesh dp=2,tp=2 --flavour delayed
way OK --hsdp 2 --ranks 4 --cuda-memory vmm
way OK --jobs 2 --ranks 2
way OK --hosts 2 --ifname lo --ranks 2
way OK --hosts 2 --ifname lo --ranks 5 --slots 2 --no-precompute
way OK --hosts 3 --ifname lo --ranks 6 --flavour delayed --cuda-memory vmm --pre-gather
way "$found" --hosts 2 --ifname lo --ranks 4 --plant byte
exit $failed
