#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# use_installed.sh ROOT TRAINER: builds the example against what is installed below ROOT ("" in a
# chroot) in all ways that are promised, as C and C++, shared and static, with pkg-config and CMake,
# and runs each as two ranks against the installed daemon.
set -euo pipefail
root=$1
trainer=$2

fail() {
    echo "NOT OK: $*"
    exit 1
}

# The folders of this installation, which has a prefix of its own.
pc=$(find "${root:-/usr}" -name libf8client.pc)
[[ -n $pc && $pc != *$'\n'* ]] || fail "not one libf8client.pc below ${root:-/usr}, but: $pc"
prefix=$(realpath "$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --variable=prefix libf8client)")
libraries=$(dirname "$(dirname "$pc")")
if [[ -n $root ]]; then
    # Its files find one another wherever they lie; only the loader and both finders are told.
    export PKG_CONFIG_PATH=$libraries/pkgconfig
    export LD_LIBRARY_PATH=$libraries CMAKE_PREFIX_PATH=$prefix
fi
export F8GATHERD_CONFIG=/dev/null

daemon=
work=$(mktemp -d)
finish() {
    [[ -z $daemon ]] || kill -KILL "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

build_by_pkg_config() {
    local c="-std=c11 -Wall -Wextra -Wpedantic -Werror" cxx="-std=c++20 -Wall -Wpedantic -Werror"
    local flags static
    flags=$(pkg-config --cflags --libs libf8client)
    static=$(pkg-config --static --cflags --libs libf8client)
    # shellcheck disable=SC2086 # flags are several words
    {
        cc $c "$trainer" -o "$work/pc-c" $flags
        c++ $cxx "$work/trainer.cc" -o "$work/pc-c++" $flags
        # The linker says that dlopen wants the same libc at run time.
        cc $c -static "$trainer" -o "$work/pc-c-static" $static 2>"$work/said" ||
            fail "static: $(cat "$work/said")"
        c++ $cxx -static "$work/trainer.cc" -o "$work/pc-c++-static" $static 2>"$work/said" ||
            fail "static: $(cat "$work/said")"
    }
}

build_by_cmake() {
    mkdir "$work/cmake"
    cp "$trainer" "$work/cmake/trainer.c"
    cp "$work/trainer.cc" "$work/cmake"
    cat >"$work/cmake/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.16)
project(use LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(f8client 99 QUIET)
if(f8client_FOUND)
    message(FATAL_ERROR "version 99 was found")
endif()
find_package(f8client \${WANTED} REQUIRED COMPONENTS static)
foreach(language c cc)
    add_executable(cmake-\${language} trainer.\${language})
    target_link_libraries(cmake-\${language} PRIVATE f8::client)
    add_executable(cmake-\${language}-static trainer.\${language})
    target_link_libraries(cmake-\${language}-static PRIVATE f8::client_static)
endforeach()
TEXT
    cmake -S "$work/cmake" -B "$work/cmake/build" -DWANTED="$(pkg-config --modversion libf8client)" \
        >"$work/said" 2>&1 || fail "cmake: $(cat "$work/said")"
    cmake --build "$work/cmake/build" >"$work/said" 2>&1 || fail "cmake: $(cat "$work/said")"
    mv "$work/cmake/build"/cmake-* "$work"
}

# Which of them are linked to the shared library tells readelf.
check_linkage() {
    local program=$1 needed
    needed=$(readelf -d "$program" | grep -c 'NEEDED.*libf8client.so.0' || true)
    case $program in
    *-static) [[ $needed -eq 0 ]] || fail "$program is linked to the shared library" ;;
    *) [[ $needed -eq 1 ]] || fail "$program is not linked to libf8client.so.0" ;;
    esac
}

start_daemon() {
    "$prefix/bin/f8gatherd" --socket "$work/socket" 2>"$work/log" &
    daemon=$!
    for ((i = 0; i < 600; i++)); do
        "$prefix/bin/f8ctl" --socket "$work/socket" ping >/dev/null 2>&1 && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    fail "f8gatherd does not answer: $(cat "$work/log")"
}

run() {
    local program=$1 rank pids=() expected
    for rank in 0 1; do
        "$program" "$rank" 2 "$work/socket" >"$work/rank$rank" 2>&1 &
        pids+=($!)
    done
    for rank in 0 1; do
        wait "${pids[$rank]}" || fail "$program, rank $rank: $(cat "$work/rank$rank")"
        expected="rank $rank step 0: scale 448.069, first byte 0x00, norm 1
rank $rank step 1: scale 896, first byte 0xfe, norm 2
rank $rank step 2: scale 448, first byte 0xfe, norm 3"
        [[ $(cat "$work/rank$rank") == "$expected" ]] ||
            fail "$program, rank $rank printed: $(cat "$work/rank$rank")"
    done
    echo "ok: $(basename "$program")"
}

cp "$trainer" "$work/trainer.cc"
build_by_pkg_config
build_by_cmake
start_daemon
programs=("$work"/pc-* "$work"/cmake-*)
[[ ${#programs[@]} -eq 8 ]] || fail "not eight programs: ${programs[*]}"
for program in "${programs[@]}"; do
    check_linkage "$program"
    run "$program"
done
kill -TERM "$daemon"
wait "$daemon" || fail "f8gatherd ended with status $?: $(cat "$work/log")"
daemon=
