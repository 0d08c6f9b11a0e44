#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hosts_jobs.sh DAEMON BENCH HOSTS JOBS STEPS: jobs of f8bench at once, each over the same daemons and
# their simulated GPUs, whose NCCL ends the process if the order of two jobs' collectives differs
# between devices. Every other pair of them is a mesh, whose data parallel ranks are on all hosts. The
# daemons share the loopback: no root.
set -eu
daemon=$1 bench=$2 hosts=$3 jobs=$4 steps=$5
directory=$(mktemp -d)
pids=
# shellcheck disable=SC2064,SC2086
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$directory"' EXIT

sockets=
host=0
while [ $host -lt "$hosts" ]; do
    socket=$directory/$host.sock
    CUDASIM_SEED=$host "$daemon" --socket "$socket" --host-name "host$host" --socket-ifname lo \
        --linger 0 2>"$directory/$host.log" &
    pids="$pids $!"
    sockets=$sockets${sockets:+,}$socket
    host=$((host + 1))
done
for socket in $(echo "$sockets" | tr , ' '); do
    until [ -S "$socket" ]; do
        # shellcheck disable=SC2086
        kill -0 $pids
        sleep 0.05
    done
done

running=
job=0
while [ $job -lt "$jobs" ]; do
    flavour=dynamic
    [ $((job % 2)) = 0 ] || flavour=delayed
    ranks="--ranks $((2 * hosts))"
    [ $((job / 2 % 2)) = 0 ] || ranks="--mesh dp=$hosts,tp=2"
    # shellcheck disable=SC2086
    "$bench" run --device cuda --model tiny $ranks --hosts "$hosts" \
        --socket "$sockets" --steps "$steps" --seed $((job + 1)) \
        --flavour "$flavour" >"$directory/job$job" 2>&1 &
    running="$running $!"
    job=$((job + 1))
done
status=0
for pid in $running; do
    wait "$pid" || status=1
done
if [ $status != 0 ]; then
    cat "$directory"/job* "$directory"/*.log
fi
# shellcheck disable=SC2086
kill $pids
for pid in $pids; do
    wait "$pid" || status=1
done
pids=
exit $status
