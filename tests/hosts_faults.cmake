# SPDX-License-Identifier: Apache-2.0
# Faults of groups over several hosts, as whole processes in network namespaces.
f8_add_test(test_hosts_faults LABEL hosts SOURCES system/test_hosts_faults.c lib/fault_scene.c
    lib/fault_rank.c lib/fault_model.c lib/proc.c LIBS test_daemon f8bench_network f8kernels m)
if(TARGET f8gather-gloo)
    add_dependencies(test_hosts_faults f8gather-gloo)
endif()
