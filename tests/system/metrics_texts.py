#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics_texts.py F8GATHERD F8CTL DOCS: docs/metrics.md lists the metrics that a daemon prints, with
their types, and the dashboard in DOCS asks for no other. Needs nothing but Python."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120
SUFFIXES = {"counter": ["_total"], "info": ["_info"], "gauge": [""],
            "histogram": ["_bucket", "_sum", "_count"]}


def text_of_daemon(f8gatherd, f8ctl):
    """All families, of a daemon that holds nothing."""
    with tempfile.TemporaryDirectory(prefix="f8test-") as folder:
        socket = f"{folder}/s"
        command = [f8ctl, "--socket", socket, "metrics", "--weights"]
        with subprocess.Popen([f8gatherd, "--socket", socket], stderr=subprocess.DEVNULL) as daemon:
            try:
                end = time.monotonic() + PATIENCE_S
                while time.monotonic() < end:
                    asked = subprocess.run(command, capture_output=True, text=True, check=False)
                    if asked.returncode == 0:
                        return asked.stdout
                    time.sleep(0.05)
            finally:
                daemon.terminate()
    sys.exit(f"no metrics from the daemon: {asked.stderr}")


def compare(what, found, wanted):
    """The sentences for what is in one and not in the other."""
    for name in sorted(found.keys() - wanted.keys()):
        yield f"{what} has {name}, the daemon does not"
    for name in sorted(wanted.keys() - found.keys()):
        yield f"{what} lacks {name}, which the daemon prints"
    for name in sorted(found.keys() & wanted.keys()):
        if found[name] != wanted[name]:
            yield f"{what} says that {name} is a {found[name]}, it is a {wanted[name]}"


def expressions(node):
    """All that the dashboard asks Prometheus for."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def unknown(what, text, samples):
    """Names in a text that no sample has."""
    for name in sorted(set(re.findall(r"\bf8gather_\w+", text)) - samples):
        yield f"{what} asks for {name}, of which there are no samples"


def main(f8gatherd, f8ctl, docs):
    text = text_of_daemon(f8gatherd, f8ctl)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    samples = {name + suffix for name, type_ in types.items() for suffix in SUFFIXES[type_]}
    page = (pathlib.Path(docs) / "metrics.md").read_text()
    listed = dict(re.findall(r"^\| `(f8gather_\w+)` \| (\w+) \|", page, re.MULTILINE))
    wrong = list(compare("docs/metrics.md", listed, types))
    woken = page.split("## What to be woken for")[1]
    wrong += unknown("docs/metrics.md", woken, samples)
    dashboard = json.loads((pathlib.Path(docs) / "grafana-f8gather.json").read_text())
    asked = list(expressions(dashboard))
    if len(dashboard["panels"]) < 10 or sum("f8gather_" in e for e in asked) < 10:
        wrong.append("the dashboard asks for next to nothing")
    for expression in asked:
        wrong += unknown("the dashboard", expression, samples)
    for line in wrong:
        print("NOT OK:", line)
    print(f"{len(types)} families, {len(listed)} in docs/metrics.md, {len(asked)} expressions")
    return 1 if wrong or len(types) < 30 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
