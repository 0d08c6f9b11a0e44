#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# trainer_restart.sh F8GATHERD TRAINER_RESTART F8CTL: the example that docs/checkpoints.md explains, on
# two ranks, with its daemon killed twice in mid-run. In the end its state is that of a run that
# nothing disturbed, byte for byte.
set -euo pipefail
f8gatherd=$1
trainer=$2
f8ctl=$3
steps=10000
directory=$(mktemp -d)
socket=$directory/s
daemon=
ranks=()

finish() {
    for pid in "${ranks[@]}" $daemon; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$directory"
}
trap finish EXIT

fail() {
    echo "NOT OK: $1"
    cat "$directory"/log "$directory"/out.*
    exit 1
}

# await WHAT COMMAND...: until the command is true, two minutes at most.
await() {
    what=$1
    shift
    for _ in $(seq 2400); do
        "$@" && return
        sleep 0.05
    done
    fail "waited in vain for $what"
}

serves() {
    "$f8ctl" --socket "$socket" ping >/dev/null 2>&1
}

start_daemon() {
    "$f8gatherd" --socket "$socket" --config /dev/null 2>>"$directory/log" &
    daemon=$!
    await "the daemon" serves
}

kill_daemon() {
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
}

start_ranks() {
    ranks=()
    for rank in 0 1; do
        "$trainer" $rank 2 $steps "$socket" >"$directory/out.$rank" 2>&1 &
        ranks+=($!)
    done
}

await_ranks() {
    for pid in "${ranks[@]}"; do
        wait "$pid" || fail "a rank failed"
    done
    ranks=()
}

has_line() {
    grep -q "$1" "$directory/out.0"
}

# export_state FILE: as the operator has it; exports have nothing of the moment in them.
export_state() {
    "$f8ctl" --socket "$socket" export example-restart dp "$1" >/dev/null || fail "no export"
}

start_daemon
start_ranks
for step in 100 3000; do
    await "step $step" has_line "^step $step:"
    kill_daemon
    kill -0 "${ranks[0]}" || fail "the ranks were done before the kill"
    start_daemon
done
await_ranks
export_state "$directory/killed"
cp "$directory/out.0" "$directory/killed.out"
start_ranks # a new run: with 0 syncs, where 2000 are stored, it is refused
wait "${ranks[0]}" && fail "a new run continued an old state"
wait "${ranks[1]}" || true
ranks=()
has_line "has seen $steps syncs, where the seal continues at sync 0" || fail "the refusal says nothing"
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon did not end well"
rm -rf "$socket.state"
start_daemon
start_ranks
await_ranks
export_state "$directory/quiet"
cmp "$directory/killed" "$directory/quiet" || fail "the states differ"
cmp "$directory/killed.out" "$directory/out.0" || fail "what was printed differs"
echo "ok: two kills in $steps steps, the same state and the same scales"
