#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# in_chroot.sh: run by packages.sh in a new Debian, as root: installs the packages of /f8test with
# what they depend on, looks at what they did, uses them, upgrades them, and purges them.
set -euo pipefail
cd /f8test
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
own=(f8gatherd f8gather-tools libf8client0 libf8client-dev)
[[ ! -e $(echo f8gatherd-cuda_*) ]] || own+=(f8gatherd-cuda)

fail() {
    echo "NOT OK: $1"
    exit 1
}

quietly() {
    "$@" </dev/null >log 2>&1 || fail "$*: $(cat log)"
}

# The daemon as the unit has it: by its user, at the usual place, with the packaged settings.
use_daemon() {
    local daemon
    setpriv --reuid f8gatherd --regid f8gatherd --clear-groups f8gatherd 2>daemon.log &
    daemon=$!
    for ((i = 0; i < 600; i++)); do
        f8ctl ping >/dev/null 2>&1 && break
        kill -0 "$daemon" 2>/dev/null || fail "f8gatherd ended: $(cat daemon.log)"
        sleep 0.1
    done
    [[ $(stat -c '%U:%G %a' /run/f8gatherd/f8gatherd.sock) == "f8gatherd:f8gatherd 660" ]] ||
        fail "the socket is $(ls -l /run/f8gatherd)"
    quietly f8bench run --model tiny --ranks 2 --steps 2 --socket /run/f8gatherd/f8gatherd.sock
    kill -TERM "$daemon"
    wait "$daemon" || fail "f8gatherd ended with $?: $(cat daemon.log)"
    echo "ok: f8gatherd by its user, f8ctl, f8bench"
}

# What is installed of ours, by name. dpkg and apt keep logs, which are not looked at.
ours() {
    find / -xdev \( -path /proc -o -path /f8test -o -path /var/log -o -path /var/cache \) -prune -o \
        \( -name '*f8gather*' -o -name '*f8client*' \) -print
}

quietly apt-get install -q -y --no-install-recommends ./*.deb
echo "ok: installed with what they depend on"
getent passwd f8gatherd >/dev/null || fail "there is no user f8gatherd"
[[ $(stat -c %U /run/f8gatherd) == f8gatherd ]] || fail "/run/f8gatherd is not f8gatherd's"
[[ -L /etc/systemd/system/multi-user.target.wants/f8gatherd.service ]] || fail "not enabled"
[[ ! -e /etc/systemd/system/sockets.target.wants/f8gatherd.socket ]] || fail "socket is enabled"
for file in bash-completion/completions/f8ctl zsh/vendor-completions/_f8ctl \
    fish/vendor_completions.d/f8ctl.fish doc/libf8client-dev/examples/trainer_restart.c; do
    [[ -s /usr/share/$file ]] || fail "there is no /usr/share/$file"
done
use_daemon

quietly apt-get install -q -y --no-install-recommends g++ pkgconf cmake make
bash use_installed.sh "" /usr/share/doc/libf8client-dev/examples/trainer.c

# An upgrade keeps what was set; a purge keeps nothing.
echo "log-level = debug" >>/etc/f8gatherd/f8gatherd.conf
mkdir -p /var/lib/f8gatherd
quietly dpkg --install ./*.deb
f8gatherd --print-config | grep -q 'log-level = debug .*/etc/f8gatherd/f8gatherd.conf:' ||
    fail "the upgrade changed the settings"
quietly apt-get purge -q -y "${own[@]}"
left=$(ours)
[[ -z $left ]] || fail "left after the purge: $left"
echo "ok: upgraded, purged"
