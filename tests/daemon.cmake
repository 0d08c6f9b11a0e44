# SPDX-License-Identifier: Apache-2.0
# The daemon's rooms, each alone, and the session over real rooms without a socket.
foreach(suite protocol names weights weights_compare scaling scaling_delayed history registry outq
        unpack config peer listener device)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS f8daemon)
endforeach()
foreach(suite conn conn_end)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c lib/conn_fixture.c
        LIBS f8daemon kernel_support)
endforeach()

# Sessions without a socket: the fixture turns the loop.
add_library(rooms STATIC lib/rooms.c lib/rooms_ask.c lib/device_backend.c
    lib/device_backend_objects.c lib/device_backend_work.c)
target_link_libraries(rooms PUBLIC f8daemon PkgConfig::CHECK)

add_library(mesh STATIC lib/mesh.c)
target_link_libraries(mesh PUBLIC rooms)

foreach(suite session session_groups session_drain session_run session_mesh session_mesh_misuse
        inspect inspect_history inspect_stats)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS rooms mesh kernel_support)
endforeach()

# Rooms on devices, without CUDA: over the backend of lib/device_backend.h.
add_library(device_group STATIC lib/device_group.c)
target_link_libraries(device_group PUBLIC rooms)
foreach(suite session_device session_memory device_rounds device_many device_landing
        inspect_device)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS device_group)
endforeach()
f8_add_test(test_device_linked LABEL daemon SOURCES test_device_linked.c LIBS mesh)

# Scripts of packets that may be anything, the same ones every time; and, with -DF8_FUZZ=ON and
# clang, for libFuzzer: build/bin/fuzz_seed > corpus/run; build/bin/fuzz_seed devices >
# corpus/devices; build/bin/fuzz_session corpus
set(FUZZ_SOURCES fuzz/session_fuzz.c fuzz/turn_backend.c fuzz/whole_run.c
    lib/device_backend.c lib/device_backend_objects.c lib/device_backend_work.c)
f8_add_test(test_session_fuzz LABEL daemon SOURCES fuzz/test_session_fuzz.c ${FUZZ_SOURCES}
    LIBS f8daemon kernel_support)
if(F8_SANITIZE)
    target_compile_definitions(test_session_fuzz PRIVATE FUZZ_RUNS=600)
endif()
option(F8_FUZZ "Build the libFuzzer target (clang only)" OFF)
if(F8_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "F8_FUZZ needs clang: libFuzzer is its own")
    endif()
    add_executable(fuzz_seed fuzz/seed.c ${FUZZ_SOURCES})
    target_link_libraries(fuzz_seed PRIVATE f8daemon)
    add_executable(fuzz_session fuzz/libfuzzer.c ${FUZZ_SOURCES})
    target_link_libraries(fuzz_session PRIVATE f8daemon)
    target_compile_options(f8daemon PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(fuzz_session PRIVATE -fsanitize=fuzzer)
endif()

# Allocations that fail: the daemon's sources once more, with other names for malloc.
get_target_property(DAEMON_SOURCES f8daemon SOURCES)
get_target_property(DAEMON_DIR f8daemon SOURCE_DIR)
get_target_property(DAEMON_LIBRARIES f8daemon LINK_LIBRARIES)
list(TRANSFORM DAEMON_SOURCES PREPEND ${DAEMON_DIR}/)
add_library(f8daemon_failing STATIC ${DAEMON_SOURCES})
target_compile_options(f8daemon_failing PRIVATE
    -include ${CMAKE_CURRENT_SOURCE_DIR}/lib/fail_alloc_names.h)
target_link_libraries(f8daemon_failing PUBLIC ${DAEMON_LIBRARIES})
f8_add_test(test_fail_alloc LABEL daemon
    SOURCES test_fail_alloc.c lib/fail_alloc.c lib/rooms.c lib/rooms_ask.c
    lib/device_backend.c
    lib/device_backend_objects.c lib/device_backend_work.c LIBS f8daemon_failing)
