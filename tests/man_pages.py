#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man_pages.py SOURCE BIN: holds the man pages of SOURCE/docs/man against what they describe.

f8ctl(1)           each command has a section with its arguments, each option an entry
f8bench(1)         each option of `run` and of `exchange`
f8gatherd(8)       each flag
f8gatherd.conf(5)  each setting, with the default that --help tells
section 3          each function, on one page; each declaration of the public headers, word by word
f8_error_text(3)   each status code
f8client(7)        examples/trainer.c and the loop of trainer_restart.c, word by word; functions

The programs in BIN tell what there is, the headers do so for the library. What a page has and the
program has not is wrong too. Prints one line for each thing that is wrong and ends with status 1 if
there is any, but first plants such faults and looks whether they are found.
"""
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"^\*([a-z0-9-]+)\*(?: _(.+?)_)?(?: \(_reload_\))?\n\t(.*)$", re.M)


class Checker:
    """What is described by pages (a dict of name to text), and by the sources and programs."""

    def __init__(self, source, programs, pages):
        self.source, self.programs, self.pages = source, programs, pages
        self.wrong = []

    def say(self, page, text):
        self.wrong.append(f"docs/man/{page}.scd: {text}")

    def help(self, *command):
        if command not in self.programs:
            raise SystemExit(f"no output of {' '.join(command)}")
        return self.programs[command]

    def compare(self, page, kind, there, described):
        for name, meaning in there.items():
            if name not in described:
                self.say(page, f"has no {kind} for: {name}   ({meaning})")
        for name in described:
            if name not in there:
                self.say(page, f"has a {kind} for what is not there: {name}")

    def section(self, page, title):
        """The text between the heading and the next of its kind."""
        found = re.search(rf"^# {title}\n(.*?)(?=^# |\Z)", self.pages[page], re.M | re.S)
        if not found:
            self.say(page, f"has no section {title}")
        return found[1] if found else ""

    def entries(self, page, title):
        return {" ".join(filter(None, (name, value))): text
                for name, value, text in ENTRY.findall(self.section(page, title))}

    def check_options(self, page, title, text, leave_out=()):
        options = {name: meaning for name, meaning in options_of(text).items()
                   if name not in leave_out}
        self.compare(page, "entry", options, self.entries(page, title))

    def check_commands(self):
        text = self.help("f8ctl", "--help")
        rows = text[text.index("Commands:"):text.index("Options:")]
        commands = {name: meaning for name, meaning in
                    re.findall(r"^  (\S.*?) {2,}(.*)$", rows, re.M)}
        sections = re.findall(r"^## (.*)$", self.section("f8ctl.1", "COMMANDS"), re.M)
        self.compare("f8ctl.1", "section (## NAME ARGUMENTS)", commands, sections)
        self.check_options("f8ctl.1", "OPTIONS", text)

    def check_settings(self):
        text = self.help("f8gatherd", "--help")
        self.check_options("f8gatherd.8", "OPTIONS", text)
        keys = re.findall(r"^(?:# )?([a-z0-9-]+) =", self.help("f8gatherd", "--print-config"), re.M)
        flags = options_of(text)
        settings = {name.lstrip("-"): meaning for name, meaning in flags.items()
                    if name.split()[0][2:] in keys}
        self.compare("f8gatherd.conf.5", "entry", settings,
                     self.entries("f8gatherd.conf.5", "SETTINGS"))
        for name, meaning in settings.items():
            default = re.search(r"\(default: (\w+)\)$", meaning)
            entry = self.entries("f8gatherd.conf.5", "SETTINGS").get(name)
            if default and entry and f"Default: {default[1]}" not in entry:
                self.say("f8gatherd.conf.5", f"{name}: does not say 'Default: {default[1]}'")
        if len(settings) != len(keys):
            self.say("f8gatherd.conf.5", "--print-config and --help have different settings")

    def check_library(self):
        headers = "".join((self.source / "client" / name).read_text()
                          for name in ("f8client.h", "f8types.h"))
        shown = {page: "\n".join(re.findall(r"^```\n(.*?)^```", text, re.M | re.S))
                 for page, text in self.pages.items()}
        words = {page: words_of(text) for page, text in shown.items() if page.endswith(".3")}
        for declaration in declarations_of(headers):
            if not any(words_of(declaration) in text for text in words.values()):
                self.say("*.3", f"no page shows: {' '.join(declaration.split())}")
        functions = functions_of(headers)
        names = {}
        for page, text in self.pages.items():
            for name in names_of(text) if page.endswith(".3") else ():
                if name in names:
                    self.say(page, f"{name} is a name of {names[name]} too")
                if f" {name}(" not in shown[page] and f"*{name}(" not in shown[page]:
                    self.say(page, f"its SYNOPSIS has no {name}")
                names[name] = page
        self.compare("*.3", "name", {name: "below NAME" for name in functions}, names)
        for name in functions:
            if f"*{name}*(3)" not in self.pages["f8client.7"]:
                self.say("f8client.7", f"does not name {name}(3)")
        self.check_examples()

    def check_examples(self):
        # scdoc takes a backslash for an escape, in code too.
        trainer, restart = ((self.source / "examples" / name).read_text().replace("\\", "\\\\")
                            for name in ("trainer.c", "trainer_restart.c"))
        if trainer.strip() not in self.pages["f8client.7"]:
            self.say("f8client.7", "its example is not examples/trainer.c")
        for name in ("seal", "recover", "is_done"):
            function = re.search(rf"^static \w+ {name}\(.*?^\}}$", restart, re.M | re.S)
            if not function or function[0] not in self.pages["f8client.7"]:
                self.say("f8client.7", f"its {name}() is not that of examples/trainer_restart.c")

    def check_statuses(self):
        text = (self.source / "proto" / "status.h").read_text()
        for code, name, meaning in re.findall(r'X\((-?\d+), (\w+), "(.*?)"\)', text):
            row = rf"^ *{code} +F8_{name} +{re.escape(meaning)}$"
            if not re.search(row, self.pages["f8_error_text.3"], re.M):
                self.say("f8_error_text.3", f"has no line for {code} F8_{name} {meaning}")

    def run(self):
        self.check_commands()
        self.check_settings()
        self.check_options("f8bench.1", "OPTIONS OF RUN", self.help("f8bench", "run", "--help"))
        self.check_options("f8bench.1", "OPTIONS OF EXCHANGE",
                           self.help("f8bench", "exchange", "--help"))
        self.check_library()
        self.check_statuses()
        return self.wrong


def options_of(text):
    """{"--flag VALUE": "meaning"} of a --help."""
    rows = re.findall(r"^  (--[a-z0-9-]+(?: [^ \n]+)?) +(\S.*)$", text, re.M)
    # A flag without a value, whose meaning begins after several blanks.
    plain = dict(re.findall(r"^  (--[a-z0-9-]+) {2,}(\S.*)$", text, re.M))
    return {name.split()[0] if name.split()[0] in plain else name:
            plain.get(name.split()[0], meaning) for name, meaning in rows}


def words_of(code):
    """Code without comments and layout."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", code, flags=re.S).split())


def functions_of(headers):
    return re.findall(r"F8_API [^;(]*?(f8_\w+)\(", headers)


def declarations_of(headers):
    return (re.findall(r"^F8_API ([^;]*\);)", headers, re.M)
            + re.findall(r"^((?:struct|enum) f8_\w+ \{.*?^\};)", headers, re.M | re.S)
            + re.findall(r"^(typedef [^;]*;)", headers, re.M))


def names_of(page):
    found = re.search(r"^# NAME\n\n(.*?) - ", page, re.M)
    return found[1].split(", ") if found else []


def read_programs(programs):
    def output(*command):
        done = subprocess.run([programs / command[0], *command[1:]], capture_output=True, text=True,
                              check=True, env={"F8GATHERD_CONFIG": "/dev/null"})
        return done.stdout
    commands = (("f8ctl", "--help"), ("f8bench", "run", "--help"), ("f8bench", "exchange", "--help"),
                ("f8gatherd", "--help"), ("f8gatherd", "--print-config"))
    return {command: output(*command) for command in commands}


# Page, what is taken out of it, what is put there instead, and what must be said of that.
PLANTED = (
    ("f8ctl.1", "## export JOB GROUP FILE", "## export JOB FILE", "for: export JOB GROUP FILE"),
    ("f8ctl.1", "*--uid* _UID_", "*--user* _UID_", "for: --uid UID"),
    ("f8bench.1", "*--pre-gather*", "--pre-gather", "for: --pre-gather"),
    ("f8gatherd.8", "*--drain* _SECONDS_", "*--drain* _MINUTES_", "not there: --drain MINUTES"),
    ("f8gatherd.conf.5", "*linger* _SECONDS_", "*lingers* _SECONDS_", "for: linger SECONDS"),
    ("f8gatherd.conf.5", "Default: 4096.", "Default: 4097.", "does not say 'Default: 4096'"),
    ("f8_seal.3", "uint64_t syncs;", "uint32_t syncs;", "shows: struct f8_seal_options"),
    ("f8_seal.3", "f8_seal, f8_syncs", "f8_seal", "for: f8_syncs"),
    ("f8_error_text.3", "F8_ESTALE", "F8_ESTALL", "for -16 F8_ESTALE"),
    ("f8client.7", "STEPS = 3", "STEPS = 4", "not examples/trainer.c"),
    ("f8client.7", "F8_ANY_SYNCS);", "0);", "its recover() is not"),
    ("f8client.7", "seen %llu\\\\n", "seen %llu\\n", "its is_done() is not"),
)


def main():
    source, programs = pathlib.Path(sys.argv[1]), read_programs(pathlib.Path(sys.argv[2]))
    pages = {path.stem: path.read_text() for path in (source / "docs" / "man").glob("*.scd")}
    wrong = Checker(source, programs, pages).run()
    for page, taken, put, said in PLANTED if not wrong else ():
        if taken not in pages[page]:
            wrong.append(f"man_pages.py: cannot plant in {page}: it has no {taken}")
            continue
        planted = Checker(source, programs, {**pages, page: pages[page].replace(taken, put)}).run()
        if not any(said in line for line in planted):
            wrong.append(f"man_pages.py: {put} in {page} was not found")
    print("\n".join(wrong) or f"{len(pages)} pages are complete")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
