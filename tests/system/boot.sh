#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh BUILD TRAINER_RESTART: installs into a copy of this host's root (an overlay; nothing of the host changes),
# boots a systemd there in a container of systemd-nspawn, and has it run boot_guest.sh, which uses
# the service as an operator and his trainers do. Exit status 77 (skip) where no container can boot.
set -euo pipefail
build=$1
trainer=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() {
    echo "skipped: $1"
    exit 77
}

[[ $EUID -eq 0 ]] || skip "only root boots a container"
command -v systemd-nspawn >/dev/null || skip "there is no systemd-nspawn (Debian: systemd-container)"
[[ -x /lib/systemd/systemd ]] || skip "there is no systemd to boot"

work=$(mktemp -d)
root=$work/root
mkdir "$work/tmpfs" "$root"
finish() {
    umount "$root" 2>/dev/null || true
    umount "$work/tmpfs" 2>/dev/null || true
    rmdir "$work/tmpfs" "$root" "$work"
}
trap finish EXIT
mount -t tmpfs -o size=2g tmpfs "$work/tmpfs" || skip "no tmpfs can be mounted here"
mkdir "$work/tmpfs/upper" "$work/tmpfs/work"
mount -t overlay -o "lowerdir=/,upperdir=$work/tmpfs/upper,workdir=$work/tmpfs/work" overlay "$root" ||
    skip "no overlay of this root can be mounted here"

# ---- what the guest finds ----

DESTDIR=$root cmake --install "$build" >/dev/null
mkdir -p "$root/opt/f8test"
install "$here/boot_guest.sh" "$root/opt/f8test/run"
install "$trainer" "$root/opt/f8test/trainer_restart"
# Only what the test needs is started, not what else this host would have at its boot.
cat >"$root/etc/systemd/system/f8test.target" <<UNIT
[Unit]
Requires=basic.target
After=basic.target
AllowIsolate=yes
UNIT
cat >"$root/etc/systemd/system/f8test.service" <<UNIT
[Unit]
After=basic.target systemd-journald.service
[Service]
Type=oneshot
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ExecStart=/opt/f8test/run
StandardOutput=file:/opt/f8test/log
StandardError=inherit
TimeoutStartSec=300
ExecStopPost=systemctl exit --force
[Install]
WantedBy=f8test.target
UNIT
mkdir -p "$root/etc/systemd/system/f8test.target.wants"
ln -s ../f8test.service "$root/etc/systemd/system/f8test.target.wants/f8test.service"
rm -f "$root/etc/machine-id" # the host's would be its journal's, too
: >"$root/etc/machine-id"

# ---- the boot ----

# Whether it came to the test is told by the log: a kernel or a container that lets no systemd boot
# is a skip; a boot that came so far and failed is not.
timeout --kill-after=10 420 systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit \
    --link-journal=no --private-network --machine="f8boot-$$" --console=pipe \
    -- systemd.unit=f8test.target </dev/null >"$work/tmpfs/console" 2>&1 || true
if [[ ! -s $root/opt/f8test/log ]]; then
    tail -n 20 "$work/tmpfs/console"
    skip "no systemd came up in a container here"
fi
cat "$root/opt/f8test/log"
[[ $(tail -n 1 "$root/opt/f8test/log") == "all right" ]]
