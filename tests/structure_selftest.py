#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""structure_selftest.py ROOT: plants one fault at a time in a copy of the tree and sees to it that
structure.py reports it, in those words and nothing else. Exit status 0 if all are found."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

COPIED = ("proto", "kernels", "daemon", "client", "examples", "tests", ".ci")
LONG_FUNCTION = "\nint too_long(void)\n{\n" + "    (void)0;\n" * 58 + "    return 0;\n}\n"

# (check, file, text to add at its end; None: a file of this line only, what must be said)
FAULTS = [
    ("layers", "daemon/arena.c", '#include "daemon/session.h"\n',
     "daemon/arena.c: daemon/arena may not include daemon/session.h"),
    ("layers", "daemon/round.c", '#include "collective.h"\n',
     "daemon/round.c: daemon/round may not include daemon/collective.h"),
    ("layers", "daemon/session_join.c", '# include "daemon/conn.h"\n',
     "daemon/session_join.c: daemon/session may not include daemon/conn.h"),
    ("layers", "kernels/ref.c", '#include "proto/protocol.h"\n',
     "kernels/ref.c: kernels may not include proto/protocol.h"),
    ("layers", "client/gather.c", '#include "daemon/round.h"\n',
     "client/gather.c: client may not include daemon/round.h"),
    ("layers", "client/channel.c", '#include <client/bench/run.h>\n',
     "client/channel.c: client may not include client/bench/run.h"),
    ("layers", "client/bench/check.c", '#include "kernels/fp8.h"\n',
     "client/bench/check.c: client/check may not include kernels/fp8.h"),
    ("layers", "proto/protocol.c", '#include "kernels/kernels.h"\n',
     "proto/protocol.c: proto may not include kernels/kernels.h"),
    ("layers", "daemon/log.c", '#include "daemon/gone.h"\n',
     'daemon/log.c: includes "daemon/gone.h", which is not in the tree'),
    ("layers", "daemon/novel.c", "\n",
     "daemon/novel.c: its room daemon/novel is not in the table ALLOWED of tests/structure.py"),
    ("files", "kernels/new.c", "int a;\n/* b */\n", "kernels/new.c:1: no SPDX line"),
    ("files", "kernels/new.c", "/* SPDX-License-Identifier: Apache-2.0 */\nint a;\n",
     "kernels/new.c:2: no comment that says what this file is for"),
    ("files", "kernels/new.c",
     "/* SPDX-License-Identifier: Apache-2.0 */\n/* New. */\n" + "int a;\n" * 499,
     "kernels/new.c: 501 lines, more than 500"),
    ("functions", "kernels/new.c", LONG_FUNCTION,
     "kernels/new.c:2: too_long has 62 lines, more than 60"),
    ("layers", "kernels/cuda/amax.cu", '#include "proto/protocol.h"\n',
     "kernels/cuda/amax.cu: kernels may not include proto/protocol.h"),
    ("files", "kernels/cuda/new.cuh", "/* SPDX-License-Identifier: Apache-2.0 */\nint a;\n",
     "kernels/cuda/new.cuh:2: no comment that says what this file is for"),
    ("functions", "kernels/cuda/new.cu", LONG_FUNCTION,
     "kernels/cuda/new.cu:2: too_long has 62 lines, more than 60"),
    ("functions", "kernels/cuda/new.cuh", LONG_FUNCTION,
     "kernels/cuda/new.cuh:2: too_long has 62 lines, more than 60"),
    ("layers", "daemon/gloo/mesh.cc", '#include "daemon/reason.h"\n',
     "daemon/gloo/mesh.cc: daemon/gloo may not include daemon/reason.h"),
    ("files", "daemon/gloo/new.cc", "/* SPDX-License-Identifier: Apache-2.0 */\nint a;\n",
     "daemon/gloo/new.cc:2: no comment that says what this file is for"),
    ("functions", "daemon/gloo/new.cc", LONG_FUNCTION,
     "daemon/gloo/new.cc:2: too_long has 62 lines, more than 60"),
    ("readme", "examples/trainer.c", "\n",
     "README.md: no ```c block of it is examples/trainer.c as it is"),
]


def run(check, root):
    script = root / "tests/structure.py"
    done = subprocess.run([script, check, root], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def try_fault(root, check, name, text, expected):
    """Whether the check finds the fault, and only that. Takes it out again."""
    path = root / name
    before = path.read_text() if path.exists() else None
    path.write_text((before or "") + text)
    planted = run(check, root)
    if before is None:
        path.unlink()
    else:
        path.write_text(before)
    if planted == (1, [expected]):
        return True
    print(f"{check}, {name}: expected '{expected}', got {planted}")
    return False


def can_run(root, check):
    """Whether the check can be made here; without a fault it must have nothing to say."""
    status, lines = run(check, root)
    if status == 77:
        print(f"{check}: {' '.join(lines)}")
        return False
    if (status, lines) != (0, []):
        sys.exit(f"{check} is not silent without a fault: {lines}")
    return True


def main(root):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in COPIED:
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("vectors"))
        for name in ("dev", "CMakeLists.txt", "README.md"):
            shutil.copy(root / name, copy / name)
        checks = [check for check in dict.fromkeys(f[0] for f in FAULTS) if can_run(copy, check)]
        found = [try_fault(copy, *fault) for fault in FAULTS if fault[0] in checks]
    print(f"{sum(found)} of {len(found)} planted faults found")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
