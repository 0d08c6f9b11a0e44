#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""structure.py CHECK [ROOT]: holds the shape of the source tree.

layers     who may include whom, by the table ALLOWED
files      an SPDX line, a comment that opens each C source, at most 500 lines
functions  at most 60 lines each, as ctags sees them; exit status 77 (skip) without ctags
readme     the trainer that README.md shows is examples/trainer.c

Prints one line for each thing that is wrong and ends with status 1 if there is any. ctest runs it;
structure_selftest.py shows that it finds what it is to find.
"""
import pathlib
import re
import shutil
import subprocess
import sys

FOLDERS = ("proto", "kernels", "daemon", "client", "examples", "tests")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# Room -> the rooms that its sources may include, besides itself. The daemon's go downwards from
# main; what is not here is upward, or past a room that should have been asked. "open" is what all
# of the daemon may use: config, log, reason, and the protocol.
ALLOWED = {
    "proto": "",
    "kernels": "status",
    "daemon/main": "open server",
    "daemon/server": "open listener lock service conn backend state world kernels metrics events",
    "daemon/listener": "open owner",
    "daemon/owner": "",
    "daemon/lock": "open",
    "daemon/service": "open",
    "daemon/conn": "open peer outq unpack session",
    "daemon/peer": "open",
    "daemon/outq": "open",
    "daemon/unpack": "open",
    "daemon/session":
        "open registry collective state kernels backend region device world metrics events",
    "daemon/collective":
        "open registry round scaling history state backend arena region device world fabric counters "
        "events",
    "daemon/metrics": "open registry collective state kernels world counters owner",
    "daemon/counters": "proto",
    "daemon/events": "open",
    "daemon/state": "open scaling weights",
    "daemon/registry": "open weights scaling history region arena device backend",
    "daemon/device": "open backend",
    "daemon/round": "status",
    "daemon/scaling": "open weights kernels",
    "daemon/history": "",
    "daemon/weights": "open",
    "daemon/region": "open mapping backend",
    "daemon/arena": "open mapping",
    "daemon/backend": "open arena kernels beside",
    "daemon/cuda": "open backend arena kernels",
    "daemon/world": "open",
    "daemon/fabric": "open beside",
    "daemon/gloo": "status daemon/fabric_wire.h mapping",  # the helper, in C++
    "daemon/beside": "open",
    "daemon/mapping": "open",
    "daemon/config": "open",
    "daemon/log": "open",
    "daemon/reason": "open",
    "client": "proto",
    "client/ctl": "proto client",
    "client/bench": "proto client client/check",
    "client/check": "client/f8client.h client/f8types.h",  # f8bench's second opinion must not share code
    "examples": "client/f8client.h",
}
OPEN = ("daemon/config", "daemon/log", "daemon/reason", "proto")

# Files whose room is not the first word of their name.
ROOM_OF_FILE = {
    "daemon/inspect": "daemon/session",
    "daemon/inspect_device": "daemon/session",
    "daemon/inspect_hosts": "daemon/session",
    "daemon/inspect_private": "daemon/session",
    "daemon/inspect_saved": "daemon/session",
    "daemon/inspect_stats": "daemon/session",
    "daemon/group": "daemon/registry",
    "daemon/names": "daemon/weights",
}

# What is code, in C, in C++ or in CUDA's C++.
CODE = (".c", ".h", ".cc", ".cu", ".cuh")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
GENERATED = ("f8gather.pb-c.h", "inspect.pb-c.h", "hosts.pb-c.h", "world.pb-c.h")


def sources(root, *suffixes):
    """The files of the tree's folders with these suffixes, as paths from the root."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.name.endswith(suffixes):
                yield path.relative_to(root)


def room_of(path):
    """The room of a source; None for tests, which may include all."""
    folder, stem = path.parts[0], path.stem
    if folder == "tests":
        return None
    if folder == "daemon":
        if len(path.parts) > 2:
            return f"daemon/{path.parts[1]}"
        return ROOM_OF_FILE.get(f"daemon/{stem}", f"daemon/{stem.split('_')[0]}")
    if folder == "client" and len(path.parts) > 2:
        is_check = path.parts[1] == "bench" and stem in ("check", "check_delayed", "check_format")
        return "client/check" if is_check else f"client/{path.parts[1]}"
    return folder


def resolve(root, path, quote, name):
    """The file of this tree that an include means; None if it is another's, such as libc's."""
    if name in GENERATED:
        return pathlib.Path("proto") / name
    for folder in ([path.parent] if quote == '"' else []) + [".", "proto", "client", "tests"]:
        target = (root / folder / name).resolve()
        if target.is_file() and target.is_relative_to(root):
            return target.relative_to(root)
    return None


def is_allowed(room, target):
    """Whether a source of a room may include a file."""
    target_room = room_of(target)
    if target_room == room:
        return True
    for word in ALLOWED[room].split():
        if word == "status" and str(target) == "proto/status.h":
            return True
        if word == "open" and target_room in OPEN:
            return True
        if target_room in (word, f"daemon/{word}") or str(target) == word:
            return True
    return False


def check_layers(root):
    for path in sources(root, *CODE):
        room = room_of(path)
        if room is not None and room not in ALLOWED:
            yield f"{path}: its room {room} is not in the table ALLOWED of tests/structure.py"
            continue
        for quote, name in INCLUDE.findall((root / path).read_text()):
            target = resolve(root, path, quote, name)
            if target is None and quote == '"':
                yield f'{path}: includes "{name}", which is not in the tree'
            elif room is not None and target is not None and not is_allowed(room, target):
                yield f"{path}: {room} may not include {target}"


def check_files(root):
    top = [pathlib.Path(name) for name in ("dev", ".ci/run", "CMakeLists.txt")]
    suffixes = (*CODE, ".cmake", "CMakeLists.txt", ".sh", ".py", ".proto")
    for path in [*top, *sources(root, *suffixes)]:
        lines = (root / path).read_text().split("\n")
        first = 1 if lines[0].startswith("#!") else 0
        if "SPDX-License-Identifier: Apache-2.0" not in lines[first]:
            yield f"{path}:{first + 1}: no SPDX line"
        if path.suffix in CODE and not lines[1].startswith("/*"):
            yield f"{path}:2: no comment that says what this file is for"
        if len(lines) - 1 > MAX_FILE_LINES:
            yield f"{path}: {len(lines) - 1} lines, more than {MAX_FILE_LINES}"


def check_functions(root):
    if shutil.which("ctags") is None:
        print("skipped: no ctags here (Debian: universal-ctags)")
        sys.exit(77)
    paths = [str(path) for path in sources(root, *CODE)]
    command = ["ctags", "-x", "--map-CUDA=+.cuh", "--c-kinds=f", "--c++-kinds=f", "--CUDA-kinds=f",
               "--_xformat=%F %n %{end} %N", *paths]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    functions = [line.split() for line in listed.splitlines()]
    if len(functions) < len(paths):
        yield f"ctags finds only {len(functions)} functions in {len(paths)} files"
    for path, begin, end, name in functions:
        length = int(end) - int(begin) + 1
        if length > MAX_FUNCTION_LINES:
            yield f"{path}:{begin}: {name} has {length} lines, more than {MAX_FUNCTION_LINES}"


def check_readme(root):
    text = (root / "README.md").read_text()
    shown = re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if (root / "examples/trainer.c").read_text() not in shown:
        yield "README.md: no ```c block of it is examples/trainer.c as it is"


CHECKS = {
    "layers": check_layers,
    "files": check_files,
    "functions": check_functions,
    "readme": check_readme,
}


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0] not in CHECKS:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[1] if len(arguments) == 2 else ".").resolve()
    wrong = list(CHECKS[arguments[0]](root))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
