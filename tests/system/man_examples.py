#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man_examples.py F8CTL_PAGE F8GATHERD F8CTL F8BENCH TRAINER: runs the commands of the section
EXAMPLES of f8ctl(1), as the page has them and in its order, on a terminal and against a real daemon.

Job, group and weight are the page's; TRAINER (saturating_trainer) is the run that they are about,
whose weight must be found, plotted and exported by nothing but what is written there. What cannot
be done here is named in LEFT_OUT. Needs nothing but Python.
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 300
LEFT_OUT = ("apt ", "systemctl ")  # they change the host
SYSTEM_SOCKET = "/run/f8gatherd/f8gatherd.sock"


def check(holds, sentence):
    if not holds:
        sys.exit(f"NOT OK: {sentence}")


def commands_of(page):
    """The lines of all code blocks of the section."""
    section = re.search(r"^# EXAMPLES\n(.*?)(?=^# )", page, re.M | re.S)
    check(section, "the page has no EXAMPLES")
    blocks = re.findall(r"^```\n(.*?)^```$", section[1], re.M | re.S)
    return [" ".join(line.split()) for block in blocks
            for line in block.replace("\\\\\n", " ").splitlines()]


class Scene:
    """A daemon, what runs beside it, and a terminal for each command."""

    def __init__(self, folder, programs, commands):
        self.folder = pathlib.Path(folder)
        self.socket, self.programs = f"{folder}/s", programs
        export = next(c for c in commands if c.startswith("f8ctl export ")).split()
        self.job, self.group = export[2], export[3]
        self.weight = next(c for c in commands if c.startswith("f8ctl history ")).split()[2]
        path = {str(pathlib.Path(programs[name]).resolve().parent) for name in ("f8ctl", "f8bench")}
        self.environment = {**os.environ, "F8GATHERD_SOCKET": self.socket, "TERM": "xterm",
                            "PATH": ":".join([*path, os.environ["PATH"]])}
        self.daemon = self.trainer = self.behind = None

    def start_daemon(self):
        command = [self.programs["f8gatherd"], "--socket", self.socket, "--cuda", "off",
                   "--config", "/dev/null", "--state-dir", str(self.folder / "states")]
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(command, stderr=log)
        self.until("the daemon", lambda: self.ask("ping") is not None)

    def ask(self, *arguments):
        """What f8ctl says as JSON; None if it fails."""
        asked = subprocess.run([self.programs["f8ctl"], "--socket", self.socket, "--json",
                                *arguments], capture_output=True, text=True, check=False)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def until(self, what, test):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if test():
                return
            time.sleep(0.05)
        sys.exit(f"NOT OK: {what} does not come: {(self.folder / 'log').read_text()}")

    def saturated(self):
        asked = self.ask("scales", "--job", self.job) or {"scales": []}
        return sum(row["saturated"] for row in asked["scales"])

    def start_trainer(self):
        """The run that the examples are about, which has saturated already."""
        self.trainer = subprocess.Popen([self.programs["trainer"], self.socket, self.job,
                                         self.group, self.weight])
        self.until("a saturating weight", lambda: self.saturated() > 1000)

    def end(self, process):
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def end_trainer(self):
        self.end(self.trainer)
        self.until("the end of the run", lambda: self.ask("groups")["groups"] == [])

    def start_behind(self, command):
        self.behind = subprocess.Popen(["bash", "-c", f"exec {command.removesuffix('&')}"],
                                       cwd=self.folder, env=self.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until("its run", lambda: self.ask("scales")["scales"] != [])

    def on_terminal(self, command, steps, idle=None):
        """Its exit status and what it wrote. Each of the steps: a text to wait for, and then what
        to type; `idle` is called when it has said nothing for a second."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "-c", command], self.environment)
        said, seen, steps = b"", 0, list(steps)
        end = time.monotonic() + PATIENCE_S
        while True:
            if not select.select([terminal], [], [], 1)[0]:
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                    sys.exit(f"NOT OK: {command} does not end: {said.decode()}")
                if idle:
                    idle()
                continue
            try:
                more = os.read(terminal, 65536)
            except OSError:  # Linux' end of a terminal
                more = b""
            if not more:
                break
            said += more
            if steps and steps[0][0].encode() in said[seen:]:
                seen = len(said)
                os.write(terminal, steps.pop(0)[1])
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        check(not steps, f"{command} did not say {steps[:1]}: {said.decode()}")
        return status, said.decode().replace("\r\n", "\n")

    def close(self):
        for process in (self.trainer, self.behind, self.daemon):
            self.end(process)


def before(scene, command):
    """What the text around the command says has happened."""
    if command.startswith("f8ctl scales") and scene.trainer is None:
        scene.end(scene.behind)
        scene.until("the end of its run", lambda: scene.ask("groups")["groups"] == [])
        scene.start_trainer()
    if command.startswith("f8ctl import"):
        scene.end_trainer()
    if command == "f8ctl top":
        scene.start_trainer()
    if command == "f8ctl rounds" and scene.daemon.poll() is not None:
        scene.start_daemon()


def steps_of(scene, command):
    if command.startswith("f8ctl import"):
        return [("replaces the state", b"yes\n")]
    if command == "f8ctl top":
        return [(scene.job, b"q")]
    if command.startswith("f8ctl watch"):
        return [("rank-died", b"\x03")]
    return []


def idle_of(scene, command):
    """Of what it waits for in silence, something happens, until one is seen: it does not tell when
    it has begun."""
    def kill_or_start():
        if scene.trainer.poll() is None:
            scene.end_trainer()
        else:
            scene.start_trainer()
    return kill_or_start if command.startswith("f8ctl watch") else None


def compare(scene, command, status, said):
    """That the command did what the page says."""
    weight, words = scene.weight, command.split()
    wanted = {"f8ctl doctor": (0, 1)}.get(command, (0, -signal.SIGINT, 130)
                                          if words[1] == "watch" else (0,))
    check(status in wanted, f"{command}: status {status}: {said}")
    if command == "f8ctl jobs":
        check("f8bench-" in said, f"no run in {said}")
    if words[1] in ("scales", "amax"):
        first = said.splitlines()[1]
        check(scene.job in first and weight in first, f"{command} does not find it: {said}")
    if words[1] == "history" and "--json" in words:
        check(weight in json.dumps(json.loads(said)), f"{command}: {said}")
    if "--plot" in words:
        check(len(said.splitlines()) > 5, f"{command} draws nothing: {said}")
    for flag in ("--svg", "--html"):
        if flag in words:
            text = (scene.folder / words[words.index(flag) + 1]).read_text()
            check("<svg" in text and weight in text, f"{command} draws nothing of {weight}")
    if words[1] == "export":
        exported = (scene.folder / words[4]).read_bytes()
        check(weight.encode() in exported, f"{command}: no {weight} in it")
        if "json" in words:
            json.loads(exported)
    if words[1] == "drain":
        check(scene.daemon.wait(PATIENCE_S) == 0, "the daemon did not end well")


def walk(scene, commands):
    scene.start_daemon()
    ran = set()
    for command in commands:
        if command.startswith(LEFT_OUT):
            print("left out:", command)
            continue
        command = command.replace(SYSTEM_SOCKET, scene.socket)
        print("$", command, flush=True)
        before(scene, command)
        if command.endswith("&"):
            scene.start_behind(command)
            continue
        status, said = scene.on_terminal(
            command, steps_of(scene, command), idle_of(scene, command))
        compare(scene, command, status, said)
        ran.add(command.split()[1])
    missing = {"jobs", "scales", "history", "report", "export", "import", "watch", "snapshot",
               "drain"} - ran
    check(not missing, f"the page has no example of {sorted(missing)}")
    print(f"ok: {len(commands)} commands of the page")


def main(page, f8gatherd, f8ctl, f8bench, trainer):
    commands = commands_of(pathlib.Path(page).read_text())
    programs = {"f8gatherd": f8gatherd, "f8ctl": f8ctl, "f8bench": f8bench, "trainer": trainer}
    with tempfile.TemporaryDirectory(prefix="f8test-", ignore_cleanup_errors=True) as folder:
        with contextlib.closing(Scene(folder, programs, commands)) as scene:
            walk(scene, commands)


if __name__ == "__main__":
    main(*sys.argv[1:])
