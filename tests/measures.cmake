# SPDX-License-Identifier: Apache-2.0
# What must hold of the whole system, measured from outside: by the kernel's own books in /proc
# and by preloaded shims.
add_library(measures_support STATIC lib/crew.c lib/proc.c lib/shim.c lib/toy_rank.c)
target_link_libraries(measures_support PUBLIC test_daemon)
if(F8_SANITIZE)
    target_compile_definitions(measures_support PUBLIC F8_SANITIZED="${F8_SANITIZE}")
endif()

f8_add_shim(shim_calls system/shim_calls.c system/shim_entry.c)
f8_add_shim(shim_malloc system/shim_malloc.c system/shim_entry.c)
f8_add_shim(shim_old_kernel system/shim_old_kernel.c)
target_compile_options(shim_malloc PRIVATE -fno-builtin)

function(f8_add_measure name)
    f8_add_test(${name} LABEL system SOURCES system/${name}.c LIBS measures_support)
    target_compile_definitions(${name} PRIVATE F8_SHIM_CALLS="$<TARGET_FILE:shim_calls>"
        F8_SHIM_MALLOC="$<TARGET_FILE:shim_malloc>"
        F8_SHIM_OLD_KERNEL="$<TARGET_FILE:shim_old_kernel>")
    add_dependencies(${name} shim_calls shim_malloc shim_old_kernel)
endfunction()
f8_add_measure(test_one_copy)
f8_add_measure(test_round_trips)
f8_add_measure(test_steady_memory)
f8_add_measure(test_idle)
f8_add_measure(test_many)
f8_add_measure(test_leftovers)
f8_add_measure(test_bench_leftovers)

# Speed, for people: no ctest.
add_executable(bench_rpc bench_rpc.c)
target_link_libraries(bench_rpc PRIVATE measures_support)
