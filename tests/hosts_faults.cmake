# SPDX-License-Identifier: Apache-2.0
# Faults of groups over several hosts, as whole processes in network namespaces.
# There is nothing to fail where the engine is not built.
if(TARGET f8gather-gloo)
    f8_add_test(test_hosts_faults LABEL hosts SOURCES system/test_hosts_faults.c lib/fault_scene.c
        lib/fault_rank.c lib/fault_model.c lib/proc.c LIBS test_daemon f8bench_network f8kernels m)
    add_dependencies(test_hosts_faults f8gather-gloo)
    # Its faults are to be found in time: nothing runs beside it.
    set_tests_properties(test_hosts_faults PROPERTIES RUN_SERIAL ON)
    if(NOT F8_SANITIZE) # which are too slow for what is promised
        add_test(NAME test_hosts_faults_prompt COMMAND test_hosts_faults prompt)
        get_test_property(test_hosts_faults ENVIRONMENT environment)
        set_tests_properties(test_hosts_faults_prompt PROPERTIES SKIP_RETURN_CODE 77 LABELS hosts
            RUN_SERIAL ON ENVIRONMENT "${environment}")
    endif()
endif()

# The daemon's rooms of several hosts in one process, over worlds and fabrics that the test delivers:
# its objects come first, so that the daemon's own are not needed.
f8_add_test(test_hosts_explore LABEL hosts SOURCES test_hosts_explore.c lib/hosts_model.c lib/hosts_ranks.c
    lib/fake_world.c lib/fake_fabric.c LIBS rooms)

# Ranks that come to a host that they are not of; on loopback.
f8_add_test(test_hosts_join LABEL hosts SOURCES system/test_hosts_join.c lib/admin_link.c
    LIBS test_daemon f8proto)

# What operators see of hosts that have not met; on loopback.
f8_add_test(test_hosts_forming LABEL hosts SOURCES system/test_hosts_forming.c lib/ctl_run.c
    LIBS test_daemon PkgConfig::JANSSON ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
add_dependencies(test_hosts_forming f8ctl)
set_tests_properties(test_hosts_forming PROPERTIES LABELS "hosts;operator")
