# SPDX-License-Identifier: Apache-2.0
# The fabric: with the real helper, which lies beside these programs; they skip where it is not built.
add_library(fabric_hosts STATIC lib/fabric_hosts.c lib/proc.c)
target_link_libraries(fabric_hosts PUBLIC f8daemon PkgConfig::CHECK)
foreach(suite fabric fabric_faults fabric_process)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS fabric_hosts)
    if(TARGET f8gather-gloo)
        add_dependencies(test_${suite} f8gather-gloo)
    endif()
endforeach()

# Speed, for people: no ctest.
add_executable(bench_fabric bench_fabric.c)
target_link_libraries(bench_fabric PRIVATE fabric_hosts f8bench_network)
if(TARGET f8gather-gloo)
    add_dependencies(bench_fabric f8gather-gloo)
endif()
