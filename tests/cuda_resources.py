#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_resources.py NVCC ROOT ARCHITECTURES SOURCE... [-- FLAG...]: no kernel uses local memory.
cuda_resources.py --selftest NVCC: shows that this finds a stack frame, a spill and a lack of kernels.

Compiles each source for each of the architectures (comma-separated, as CMAKE_CUDA_ARCHITECTURES
names them) with the build's flags, and reads ptxas' report. A kernel with a stack frame, a spill or
local memory is an error: these kernels live on memory bandwidth, and that would cost it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
FUNCTION = re.compile(r"Function properties for (\w+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
LOCAL = re.compile(r"(\d+) bytes lmem")

# An array that is indexed at run time needs an address, so local memory.
PLANTED_FRAME = """
__global__ void planted(int *values, int i)
{
    int table[32];
    for (int k = 0; k < 32; k++)
        table[values[k] & 31] = k;
    values[0] = table[i & 31];
}
"""
# 64 values that are alive at once do not fit in the 16 registers that the flags leave.
PLANTED_SPILL = """
__global__ void planted(const float *from, float *to)
{
    float values[64];
#pragma unroll
    for (int k = 0; k < 64; k++)
        values[k] = from[k * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 64; k++)
        to[k * 1024 + threadIdx.x] = values[63 - k] * values[(k + 17) % 64];
}
"""
CLEAN = "__global__ void clean(int *value) { *value += 1; }"
NO_KERNEL = "int nothing(void) { return 0; }"


def code_options(architectures):
    """nvcc's options for a list such as 75-real,100."""
    for architecture in architectures.split(","):
        number = architecture.split("-")[0]
        yield f"-gencode=arch=compute_{number},code=sm_{number}"


def report_of(nvcc, source, architectures, flags):
    """What ptxas says of a source; ends the program if it does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *flags, *code_options(architectures), "-Xptxas=-v", "-c", str(source),
                   "-o", str(pathlib.Path(folder) / "object.o")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source}: nvcc ends with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def findings(source, report, architectures):
    """One line for each thing that is wrong in a report, and how many kernels are in it."""
    wrong, kernels, function, target = [], {}, "?", "?"
    for line in report.splitlines():
        if match := ENTRY.search(line):
            target = match[2]
            kernels.setdefault(target, set()).add(match[1])
        elif match := FUNCTION.search(line):
            function = match[1]
        elif match := FRAME.search(line):
            if any(int(number) for number in match.groups()):
                wrong.append(f"{source}: {function} for {target}: {match[0]}")
        elif (match := LOCAL.search(line)) and int(match[1]):
            wrong.append(f"{source}: {function} for {target}: {match[0]}")
    has_kernels = "__global__" in pathlib.Path(source).read_text()
    frames = len(FRAME.findall(report))
    if frames < sum(len(names) for names in kernels.values()):
        wrong.append(f"{source}: only {frames} kernels are reported on: is this still ptxas' text?")
    for option in code_options(architectures) if has_kernels else ():
        target = option.rsplit("=", 1)[1]
        if not kernels.get(target):
            wrong.append(f"{source}: no kernel was compiled for {target}")
    return wrong, sum(len(names) for names in kernels.values())


def selftest(nvcc):
    cases = [("clean", CLEAN, [], 0), ("frame", PLANTED_FRAME, [], 1),
             ("spill", PLANTED_SPILL, ["--maxrregcount=16"], 1), ("none", NO_KERNEL, [], 0)]
    failed = 0
    for name, text, flags, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / f"{name}.cu"
            source.write_text(text)
            report = report_of(nvcc, source, "75-real", flags)
            wrong, _ = findings(source, report, "75-real")
            silent, _ = findings(source, "", "75-real")
        if len(wrong) != expected:
            print(f"{name}: {len(wrong)} findings, not {expected}: {wrong}")
            failed = 1
        if (name != "none") != bool(silent):
            print(f"{name}: an empty report gives {silent}")
            failed = 1
    return failed


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--selftest":
        return selftest(arguments[1])
    flags = []
    if "--" in arguments:
        flags = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    if len(arguments) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    nvcc, root, architectures, *sources = arguments
    failed, total = 0, 0
    for source in sources:
        report = report_of(nvcc, source, architectures, ["-I", root, *flags])
        wrong, kernels = findings(source, report, architectures)
        total += kernels
        for line in wrong:
            print(line)
            failed = 1
    print(f"{total} kernels in {len(sources)} files for {architectures}")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
