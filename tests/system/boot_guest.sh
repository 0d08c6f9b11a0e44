#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What boot.sh runs in the machine that it boots, as root: f8gatherd under the real unit and the
# real systemd. Prints what it does; "all right" is the last line if everything was.
set -Eeuo pipefail
trap 'echo "failed at line $LINENO: $BASH_COMMAND"; journalctl --no-pager -u f8gatherd | tail -n 40' ERR

step() {
    printf -- '-- %s\n' "$*"
}

property() {
    systemctl show --value -p "$1" f8gatherd.service
}

# until_true COMMAND...: systemd tells of what it has done only to those who ask.
until_true() {
    local tries=300
    until "$@"; do
        ((tries-- > 0)) || { echo "never came true: $*"; return 1; }
        sleep 0.1
    done
}

is() {
    [[ $(property "$1") == "$2" ]]
}

was_restarted() {
    is ActiveState active && is NRestarts "$1"
}

# has_logged WORD [FIELD=VALUE...]: journald takes lines when it comes to them.
has_logged() {
    journalctl --no-pager -u f8gatherd.service "${@:2}" | grep -q -- "$1"
}

as_trainer() {
    runuser -u trainer -- "$@"
}

# train NAME STEPS: a job whose scales follow from what its weights were.
train() {
    as_trainer f8bench run --socket /run/f8gatherd/f8gatherd.sock --model tiny --ranks 2 --flavour delayed \
        --steps "$1"
}

step "the user, and who may gather"
systemd-sysusers
systemd-tmpfiles --create --prefix=/run/f8gatherd
useradd --groups f8gatherd trainer
useradd stranger

step "start"
systemctl start f8gatherd.service
is ActiveState active
is StatusErrno 0
[[ $(stat -c '%U %G %a' /run/f8gatherd/f8gatherd.sock) == "f8gatherd f8gatherd 660" ]]
[[ $(stat -c '%U' "/proc/$(property MainPID)") == f8gatherd ]]
f8ctl status
f8ctl ping

step "use"
train 5 | tail -n 2
if runuser -u stranger -- f8ctl ping 2>/tmp/refused; then
    echo "a stranger was served"
    exit 1
fi
cat /tmp/refused

step "kill -9"
killed=$(property MainPID)
kill -9 "$killed"
until_true was_restarted 1
[[ $(property MainPID) != "$killed" ]]
f8ctl ping
train 5 | tail -n 1

step "restart in the middle of a run"
train 1000000 >/tmp/run 2>&1 &
run=$!
gathers() {
    [[ $(f8ctl status --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["status"]["gathers"] > 100)') == True ]]
}
until_true gathers
systemctl restart f8gatherd.service
wait "$run" && { echo "a run did not notice that its daemon went"; exit 1; }
tail -n 2 /tmp/run
train 5 | tail -n 1

# ---- a run that outlives its daemon: examples/trainer_restart.c ----

socket=/run/f8gatherd/f8gatherd.sock

start_ranks() {
    ranks=()
    for rank in 0 1; do
        as_trainer /opt/f8test/trainer_restart $rank 2 10000 $socket >"/tmp/rank.$rank" 2>&1 &
        ranks+=($!)
    done
}

await_ranks() {
    for pid in "${ranks[@]}"; do
        wait "$pid" || { cat /tmp/rank.*; return 1; }
    done
}

export_state() {
    f8ctl --uid "$(id -u trainer)" export example-restart dp "$1"
}

step "kill -9 and restart in the middle of a run that reconnects"
start_ranks
until_true grep -q "^step 100:" /tmp/rank.0
kill -9 "$(property MainPID)"
until_true grep -q "^step 3000:" /tmp/rank.0
systemctl restart f8gatherd.service
if grep -q "^step 10000:" /tmp/rank.0; then
    echo "the run was over before the restart"
    exit 1
fi
await_ranks
export_state /tmp/disturbed
cp /tmp/rank.0 /tmp/disturbed.out

step "a reboot: what is in /run is gone"
f8ctl snapshot
[[ $(stat -c '%U %G %a' /var/lib/f8gatherd) == "f8gatherd f8gatherd 700" ]]
systemctl stop f8gatherd.service
rm -rf /run/f8gatherd
systemd-tmpfiles --create --prefix=/run/f8gatherd
systemctl start f8gatherd.service
until_true has_logged "is there by its snapshot" JOB=example-restart
f8ctl status | grep snapshots
export_state /tmp/rebooted
cmp /tmp/disturbed /tmp/rebooted

step "the same run, undisturbed"
f8ctl evict --yes --uid "$(id -u trainer)" example-restart
start_ranks
await_ranks
export_state /tmp/quiet
cmp /tmp/disturbed /tmp/quiet
cmp /tmp/disturbed.out /tmp/rank.0

step "fields of the journal"
until_true has_logged "is evicted" JOB=example-restart

step "reload"
mkdir -p /etc/f8gatherd/f8gatherd.conf.d
echo "log-level = debug" >/etc/f8gatherd/f8gatherd.conf.d/10-test.conf
systemctl reload f8gatherd.service
is ActiveState active
until_true has_logged log-level

step "a bad setting"
echo "no-such-setting = 1" >/etc/f8gatherd/f8gatherd.conf.d/10-test.conf
systemctl restart f8gatherd.service && { echo "started with a bad setting"; exit 1; }
is ExecMainStatus 2
until_true has_logged no-such-setting
rm /etc/f8gatherd/f8gatherd.conf.d/10-test.conf
systemctl reset-failed f8gatherd.service

step "activation by the socket"
systemctl start f8gatherd.socket
is ActiveState inactive
f8ctl ping
is ActiveState active
train 5 | tail -n 1
systemctl stop f8gatherd.socket f8gatherd.service

step "stop"
systemctl start f8gatherd.service
systemctl stop f8gatherd.service
is ActiveState inactive
is Result success
is ExecMainStatus 0

echo "all right"
