# SPDX-License-Identifier: Apache-2.0
# f8bench and f8ctl as whole programs against real daemons.
if(F8_SANITIZE) # each run of f8bench is several slow processes then: fewer runs, fewer steps
    set(WAYS_STEP 5)
    set(CHECKPOINT_STEPS 1)
else()
    set(WAYS_STEP 1)
    set(CHECKPOINT_STEPS 3)
endif()

add_library(test_program STATIC lib/program.c)
target_link_libraries(test_program PUBLIC test_daemon PkgConfig::JANSSON f8proto)

foreach(suite test_bench test_bench_modes test_bench_faults test_ctl_live test_ctl_peer
        test_unique_id)
    f8_add_test(${suite} SOURCES system/${suite}.c LIBS test_program)
    set_tests_properties(${suite} PROPERTIES LABELS "bench;system")
endforeach()
target_compile_definitions(test_bench PRIVATE WAYS_STEP=${WAYS_STEP})
target_compile_definitions(test_bench_modes PRIVATE WAYS_STEP=${WAYS_STEP})

# Over hosts, where there is an engine for them.
if(TARGET f8gather-gloo)
    add_library(bench_machines STATIC lib/bench_machines.c lib/proc.c)
    target_link_libraries(bench_machines PUBLIC test_program f8bench_network)
    if(F8_SANITIZE) # the same once more in namespaces takes minutes then
        target_compile_definitions(bench_machines PRIVATE F8_SANITIZED)
    endif()
    foreach(suite test_bench_hosts test_bench_addresses test_bench_addresses_lost)
        f8_add_test(${suite} SOURCES system/${suite}.c LIBS bench_machines)
        add_dependencies(${suite} f8gather-gloo)
        set_tests_properties(${suite} PROPERTIES LABELS "bench;system;hosts")
    endforeach()
    target_link_libraries(test_bench_addresses_lost PRIVATE f8bench_meeting)
endif()

# What it measures between hosts holds for optimised builds, with nothing beside it.
if(TARGET f8gather-gloo AND NOT F8_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    f8_add_test(test_bench_wire SOURCES system/test_bench_wire.c LIBS test_program f8bench_network)
    add_dependencies(test_bench_wire f8gather-gloo)
    set_tests_properties(test_bench_wire PROPERTIES LABELS "bench;system;hosts" RUN_SERIAL ON)
endif()

# The example of docs/hosts.md.
if(TARGET f8gather-gloo)
    f8_add_test(test_example_hosts LABEL hosts SOURCES system/test_example_hosts.c LIBS test_program)
    target_compile_definitions(test_example_hosts PRIVATE
        F8_TRAINER_HOSTS="$<TARGET_FILE:trainer_hosts>")
    add_dependencies(test_example_hosts f8gather-gloo trainer_hosts)
endif()

# The checker must not be able to share a defect with what it checks.
add_test(NAME bench_links_no_kernels COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/no_kernels.sh
    ${CMAKE_NM} $<TARGET_FILE:f8bench> $<TARGET_FILE:f8gatherd>
    ${CMAKE_SOURCE_DIR}/client)
set_tests_properties(bench_links_no_kernels PROPERTIES LABELS bench)

# A real checkpoint from the Python package index, loaded once for all presets.
add_test(NAME checkpoint COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/checkpoint.sh
    $<TARGET_FILE:f8bench> ${CMAKE_SOURCE_DIR}/build/checkpoint ${CHECKPOINT_STEPS})
set_tests_properties(checkpoint PROPERTIES LABELS "bench;system" SKIP_RETURN_CODE 77)
