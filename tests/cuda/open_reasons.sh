#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# open_reasons.sh F8GATHERD: what the daemon beside the simulated CUDA module says when there is
# nothing to work with; with --cuda require it ends with status 1 and that reason. In the end, with
# devices, it serves.
set -eu
daemon=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "NOT OK: $1; it said:" >&2
    cat "$work/log" >&2
    exit 1
}

# refused TEXT VARIABLE=VALUE...
refused() {
    text=$1
    shift
    status=0
    env "$@" timeout 60 "$daemon" --cuda require --socket "$work/socket" 2>"$work/log" || status=$?
    [ "$status" -eq 1 ] || fail "status $status with $*, not 1"
    grep -qF -- "--cuda require: $text" "$work/log" || fail "not '$text' with $*"
}

refused 'no CUDA driver: libcuda.so.1 is not on this host' CUDASIM_DRIVER_VERSION=0
refused 'the CUDA driver is too old: it is for CUDA 11.0, this module needs CUDA 1' \
    CUDASIM_DRIVER_VERSION=11000
refused 'the CUDA driver finds no device' CUDASIM_DEVICES=0
refused 'CUDA_LAUNCH_BLOCKING=1 is set' CUDA_LAUNCH_BLOCKING=1

# started TEXT ARGUMENT... with CUDASIM_DEVICES=$devices: serves, says so, ends in order.
started() {
    text=$1
    shift
    : >"$work/log" # here: what the last one said must not be taken for this one's
    CUDASIM_DEVICES=$devices "$daemon" --socket "$work/socket" "$@" 2>"$work/log" &
    pid=$!
    i=0
    until grep -q 'listens at' "$work/log"; do
        i=$((i + 1))
        [ "$i" -lt 600 ] || fail "it does not listen"
        sleep 0.1
    done
    kill "$pid"
    wait "$pid" || fail "status $? at its end"
    grep -q "$text" "$work/log" || fail "not '$text'"
}

devices=2
started 'device 1: simulated' --cuda require
started 'device 0: simulated'
devices=0
started 'no GPUs: the CUDA driver finds no device'
CUDASIM_DRIVER_VERSION=0
export CUDASIM_DRIVER_VERSION
started 'no GPUs: no CUDA driver'
unset CUDASIM_DRIVER_VERSION
devices=2
started 'listens at' --cuda off
if grep -qE 'GPU|device' "$work/log"; then
    fail "--cuda off looks for devices"
fi
echo "ok: each reason is told"
