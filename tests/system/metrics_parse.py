#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics_parse.py F8GATHERD F8CTL F8BENCH http|none: while f8bench runs, the text of metrics is what
prometheus_client's parser of OpenMetrics takes, over HTTP and by f8ctl; counters only grow; and
with the ranks stopped every number agrees with what f8ctl shows. Called by metrics_parse.sh."""
import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from prometheus_client.openmetrics.parser import text_string_to_metric_families

PATIENCE_S = 300


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self.path)


def check(holds, sentence):
    if not holds:
        sys.exit(f"NOT OK: {sentence}")


def until(what, test):
    """Waits for what must come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = test()
        if value:
            return value
        time.sleep(0.05)
    return sys.exit(f"NOT OK: {what} does not come")


def damaged_states(folder):
    """A state directory in which a snapshot is no snapshot."""
    os.mkdir(folder, 0o700)
    with open(f"{folder}/0000000000000001.snapshot", "w", encoding="utf-8") as file:
        file.write("damaged")
    return folder


class Host:
    """A daemon with HTTP, and what asks it."""

    def __init__(self, f8gatherd, f8ctl, folder, has_http):
        self.f8ctl, self.socket, self.path = f8ctl, f"{folder}/s", f"{folder}/metrics"
        self.log = open(f"{folder}/log", "w+", encoding="utf-8")
        self.has_http = has_http
        http = ["--metrics", self.path] if has_http else []
        self.process = subprocess.Popen(
            [f8gatherd, "--socket", self.socket, "--cuda", "off", "--state-dir",
             damaged_states(f"{folder}/states"), "--snapshot-interval", "0", *http],
            stderr=self.log)
        until("the daemon", lambda: self.ctl("ping").returncode == 0)

    def ctl(self, *arguments):
        return subprocess.run([self.f8ctl, "--socket", self.socket, *arguments],
                              capture_output=True, text=True, check=False)

    def shown(self, view):
        asked = self.ctl("--json", view)
        check(asked.returncode == 0, f"f8ctl {view}: {asked.stderr}")
        return json.loads(asked.stdout)[view]

    def by_ctl(self):
        asked = self.ctl("metrics", "--weights")
        check(asked.returncode == 0, f"f8ctl metrics: {asked.stderr}")
        return parse(asked.stdout)

    def by_http(self):
        connection = UnixConnection(self.path)
        connection.request("GET", "/metrics?weights=1")
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status == 503:  # a slow build's texts are more than their share of the loop
            time.sleep(1)
            return self.by_http()
        check(answer.status == 200, f"HTTP says {answer.status}: {text}")
        check(answer.headers["Content-Type"].startswith("application/openmetrics-text"),
              "another content type")
        return parse(text)


def parse(text):
    """The values of all samples, by name and labels, and which only grow."""
    values, growing = {}, set()
    for family in text_string_to_metric_families(text):
        check(family.documentation != "", f"{family.name} has no help")
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            check(key not in values, f"{key} comes twice")
            values[key] = sample.value
            if family.type in ("counter", "histogram"):
                growing.add(key)
    return values, growing


def of(values, name, **labels):
    key = (f"f8gather_{name}", tuple(sorted(labels.items())))
    check(key in values, f"there is no sample {key}")
    return values[key]


def watch(host, times):
    """Looks again and again, by both ways in turn."""
    before = host.by_ctl()
    for turn in range(times):
        after = host.by_http() if turn % 2 == 0 and host.has_http else host.by_ctl()
        for key in before[1]:
            check(key in after[0], f"{key} is gone")
            check(after[0][key] >= before[0][key], f"{key} went from {before[0][key]} to less")
        before = after
        time.sleep(0.05)


def same(what, metric, shown):
    check(math.isclose(metric, shown, rel_tol=1e-6), f"{what} is {metric}, f8ctl shows {shown}")


def compare_daemon(host, values):
    status = host.shown("status")
    same("gathers", of(values, "gathers_total"), status["gathers"])
    for name in ("jobs", "weights", "region_bytes", "arena_bytes"):
        same(name, of(values, name), status[name])
    same("groups", sum(v for (name, _), v in values.items() if name == "f8gather_groups"),
         status["groups"])
    failed = [v for (name, _), v in values.items() if name == "f8gather_failed_rounds_total"]
    same("failed rounds", sum(failed), status["failed_rounds"])
    same("gather times", of(values, "gather_seconds_count"), status["gathers"])
    check(of(values, "build_info", version=status["version"], kernels=status["kernels"]) == 1,
          "build_info is not 1")


def compare_snapshots(host, values):
    shown = host.shown("status")["snapshots"]
    same("snapshots", of(values, "snapshots"), shown["groups"])
    same("snapshot bytes", of(values, "snapshot_bytes"), shown["bytes"])
    check(of(values, "snapshot_written_bytes_total") >= shown["bytes"], "less was written")
    check(of(values, "failed_snapshots_total") == 0, "a pass over the states failed")
    check(0 <= of(values, "snapshot_age_seconds") <= of(values, "uptime_seconds"), "a wrong age")
    check(of(values, "unused_state_files", place="snapshot", cause="damaged") == 1,
          "the damaged snapshot is not counted")


def compare_weights(host, values):
    """Each weight, and that their sums are the daemon's."""
    met = {"gathered_bytes": 0, "saturated": 0, "nan": 0, "stale": 0}
    weights = host.shown("weights")
    check(len(weights) > 0, "f8ctl shows no weights")
    for weight in weights:
        labels = {"uid": str(weight["uid"]), "run": weight["job"], "group": weight["group"],
                  "weight": weight["name"]}
        for name, field in (("gathers_total", "gathers"), ("stale_gathers_total", "stale"),
                            ("saturated_elements_total", "saturated"),
                            ("nan_elements_total", "nan")):
            same(f"{name} of {weight['name']}", of(values, f"weight_{name}", **labels),
                 weight[field])
        for name in ("scale", "amax"):
            if weight[name] is not None:
                same(f"{name} of {weight['name']}", of(values, f"weight_{name}", **labels),
                     weight[name])
        for field in ("saturated", "nan", "stale"):
            met[field] += weight[field]
        met["gathered_bytes"] += weight["bytes"] * weight["gathers"]
    same("saturated", of(values, "saturated_elements_total"), met["saturated"])
    same("NaN", of(values, "nan_elements_total"), met["nan"])
    same("stale", of(values, "stale_gathers_total"), met["stale"])
    wires = [v for (name, _), v in values.items() if name == "f8gather_gathered_bytes_total"]
    same("gathered bytes", sum(wires), met["gathered_bytes"])
    check(of(values, "unlisted_weights") == 0, "weights are missing")


def compare_leases(host, values):
    """The holders of each bucket, and that a lease has an age while there is one."""
    buckets = host.shown("buckets")
    held = sum(len(bucket["holders"]) for bucket in buckets)
    same("leases", of(values, "leases"), held)
    groups = [v for (name, _), v in values.items() if name == "f8gather_group_leases"]
    same("leases of groups", sum(groups), held)
    check((of(values, "oldest_lease_seconds") > 0) == (held > 0),
          f"{held} leases, the oldest of {of(values, 'oldest_lease_seconds')} s")


def stand_still(host):
    """Stops the ranks; the daemon ends what they have all asked for."""
    pids = host.shown("groups")[0]["pids"]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    seen = []

    def is_still():
        seen.append(host.shown("status")["gathers"])
        return len(seen) >= 3 and seen[-1] == seen[-3]

    until("stillness", is_still)
    return pids


def run(host, f8bench):
    command = [f8bench, "run", "--model", "tiny", "--ranks", "2", "--steps", "1000000", "--check",
               "1000", "--flavour", "dynamic", "--socket", host.socket]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        until("the first gather", lambda: host.shown("status")["gathers"] > 8)
        watch(host, 20)
        check(host.ctl("snapshot").returncode == 0, "there is no snapshot")
        pids = stand_still(host)
        compare_still(host, host.by_ctl()[0])
        if host.has_http:
            compare_still(host, host.by_http()[0])
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        watch(host, 4)
        os.kill(pids[1], signal.SIGKILL)
        bench.wait(PATIENCE_S)
    until("the end of the group", lambda: host.shown("status")["groups"] == 0)
    values, _ = host.by_ctl()
    compare_daemon(host, values)
    check(of(values, "failed_rounds_total", cause="rank_died") == 1, "the death is not counted")


def compare_still(host, values):
    connections = of(values, "connections")
    check(connections >= 2, f"{connections} connections, of two ranks at least")
    compare_daemon(host, values)
    compare_snapshots(host, values)
    compare_weights(host, values)
    compare_leases(host, values)


def main(f8gatherd, f8ctl, f8bench, http):
    with tempfile.TemporaryDirectory(prefix="f8test-") as folder:
        host = Host(f8gatherd, f8ctl, folder, http == "http")
        try:
            watch(host, 2)
            run(host, f8bench)
        finally:
            host.process.terminate()
            host.process.wait()
    print("ok: parsed, growing, and as f8ctl shows" + ("" if host.has_http else "; without HTTP"))


if __name__ == "__main__":
    main(*sys.argv[1:])
