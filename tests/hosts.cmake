# SPDX-License-Identifier: Apache-2.0
# Groups over several hosts, as whole processes: daemons in network namespaces of this machine, which
# need root, with the helper that is built where libgloo is. Elsewhere these are skipped.
add_library(host_ranks STATIC lib/test_hosts.c lib/host_ranks.c lib/admin_link.c)
target_link_libraries(host_ranks PUBLIC test_daemon f8bench_network f8proto)
if(TARGET f8gather-gloo)
    add_dependencies(host_ranks f8gather-gloo)
endif()

foreach(suite test_hosts test_hosts_refused test_hosts_cause test_hosts_state
        test_hosts_path)
    f8_add_test(${suite} LABEL hosts SOURCES system/${suite}.c LIBS host_ranks)
endforeach()
f8_add_shim(shim_disk system/shim_disk.c)
f8_add_test(test_hosts_durable LABEL hosts
    SOURCES system/test_hosts_durable.c lib/slow_disk.c lib/shim.c LIBS host_ranks)
target_compile_definitions(test_hosts_durable PRIVATE F8_SHIM_DISK="$<TARGET_FILE:shim_disk>")
add_dependencies(test_hosts_durable shim_disk)
# On loopback; there is nothing to lose where the engine is not built.
if(TARGET f8gather-gloo)
    f8_add_test(test_hosts_reconnect LABEL hosts SOURCES system/test_hosts_reconnect.c LIBS host_ranks)
    set_tests_properties(test_hosts_reconnect PROPERTIES LABELS "hosts;operator")
    if(F8_SANITIZE)
        target_compile_definitions(test_hosts_reconnect PRIVATE KILLS=6 MOMENT_US=400000)
    endif()
endif()
f8_add_test(test_hosts_mesh LABEL hosts SOURCES system/test_hosts_mesh.c lib/mesh_rank.c
    LIBS host_ranks f8kernels m)
