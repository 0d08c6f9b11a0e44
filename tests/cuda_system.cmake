# SPDX-License-Identifier: Apache-2.0
# The suites of whole processes once more, with their ranks on simulated GPUs: the same programs,
# told by the environment (lib/device_memory.h), against the daemon of sim/bin.
if(NOT TARGET f8gatherd_sim)
    return()
endif()
# The suites of the module and of the client run under the thread sanitizer too; whole processes on
# simulated GPUs would take it longer than all else together.
if(F8_SANITIZE MATCHES thread)
    return()
endif()
set(CUDASIM_LIB ${CMAKE_BINARY_DIR}/sim/lib)
set(CUDASIM_BIN ${CMAKE_BINARY_DIR}/sim/bin)

# f8_add_cuda_run(NAME TEST COMMAND... DEVICES n MEMORY legacy|vmm [ENVIRONMENT name=value...]
# [TIMEOUT s]): a test that runs another's program, named cuda_NAME.
function(f8_add_cuda_run name)
    cmake_parse_arguments(ARG "" "DEVICES;MEMORY;TIMEOUT" "COMMAND;ENVIRONMENT" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 600)
    endif()
    add_test(NAME cuda_${name} COMMAND ${ARG_COMMAND})
    # Forks, under sanitizers too: a process that has used CUDA cannot fork one that does.
    set_tests_properties(cuda_${name} PROPERTIES LABELS cuda SKIP_RETURN_CODE 77
        TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT "F8_TEST_DEVICE=${ARG_MEMORY};F8_TEST_DAEMON=${CUDASIM_BIN}/f8gatherd;\
CUDASIM_DEVICES=${ARG_DEVICES};LD_LIBRARY_PATH=${CUDASIM_LIB};CK_FORK=yes;\
CK_DEFAULT_TIMEOUT=300;${ARG_ENVIRONMENT}")
endfunction()

# On one device that all ranks share, on as many as there are ranks, and on fewer than those.
set(VECTORS ${CMAKE_CURRENT_SOURCE_DIR}/vectors)
f8_add_cuda_run(conformance COMMAND conformance ${VECTORS} DEVICES 1 MEMORY legacy)
f8_add_cuda_run(conformance_devices COMMAND conformance ${VECTORS} DEVICES 4 MEMORY vmm
    ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=11)
f8_add_cuda_run(conformance_uneven COMMAND conformance ${VECTORS} DEVICES 3 MEMORY legacy
    ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=13)

# Each on one device, and on four with random delays.
set(SUITES gathered mesh rank_death death misuse state_seal state_import state_kill reconnect interrupt
    daemon_end)
if(NOT F8_SANITIZE) # 500 gathers, of which one is like another: many minutes then
    list(APPEND SUITES round_trips)
endif()
foreach(suite ${SUITES})
    f8_add_cuda_run(${suite} COMMAND test_${suite} DEVICES 1 MEMORY legacy)
    f8_add_cuda_run(${suite}_devices COMMAND test_${suite} DEVICES 4 MEMORY vmm
        ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=17)
endforeach()

f8_add_cuda_run(snapshot_durable COMMAND test_snapshot_durable DEVICES 2 MEMORY vmm
    ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)

# f8bench run --device cuda.
f8_add_cuda_run(bench COMMAND test_bench DEVICES 2 MEMORY legacy)
f8_add_cuda_run(bench_modes COMMAND test_bench_modes DEVICES 4 MEMORY vmm)

# Suites for devices alone.
add_library(cuda_stats STATIC cuda/stats.c)
target_link_libraries(cuda_stats PUBLIC measures_support)
target_include_directories(cuda_stats SYSTEM PUBLIC ${F8_CUDA_INCLUDE})
foreach(suite steady_step leftovers)
    add_executable(test_cuda_${suite} cuda/test_cuda_${suite}.c)
    target_link_libraries(test_cuda_${suite} PRIVATE cuda_stats)
endforeach()
if(NOT F8_SANITIZE) # hundreds of steps, of which one is like another
    f8_add_cuda_run(steady_step COMMAND test_cuda_steady_step DEVICES 1 MEMORY vmm)
    f8_add_cuda_run(steady_step_devices COMMAND test_cuda_steady_step DEVICES 4 MEMORY legacy)
endif()

add_executable(test_cuda_restart cuda/test_cuda_restart.c lib/state_rank.c)
target_link_libraries(test_cuda_restart PRIVATE measures_support test_program)
foreach(devices 1 3)
    f8_add_cuda_run(counted_leftovers_${devices} COMMAND test_cuda_leftovers DEVICES ${devices}
        MEMORY vmm ENVIRONMENT CUDASIM_DELAY_US=1000)
endforeach()
f8_add_cuda_run(restart COMMAND test_cuda_restart DEVICES 2 MEMORY vmm)

add_executable(test_cuda_trainer_death cuda/test_cuda_trainer_death.c)
target_link_libraries(test_cuda_trainer_death PRIVATE measures_support)
foreach(devices 1 3)
    f8_add_cuda_run(trainer_death_${devices} COMMAND test_cuda_trainer_death DEVICES ${devices}
        MEMORY legacy ENVIRONMENT CUDASIM_DELAY_US=2000 CUDASIM_SEED=23)
endforeach()

# Groups over hosts on devices: several daemons, each with devices of its own, one communicator. In
# network namespaces, so as root; else they are skipped.
f8_add_cuda_run(conformance_2_hosts COMMAND conformance --hosts 2 ${VECTORS} DEVICES 1
    MEMORY legacy)
f8_add_cuda_run(conformance_2_hosts_devices COMMAND conformance --hosts 2 ${VECTORS} DEVICES 4
    MEMORY vmm ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=31)
f8_add_cuda_run(conformance_3_hosts COMMAND conformance --hosts 3 ${VECTORS} DEVICES 2 MEMORY vmm
    ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=32)
f8_add_cuda_run(hosts_mesh COMMAND test_hosts_mesh DEVICES 1 MEMORY legacy)
f8_add_cuda_run(hosts_mesh_devices COMMAND test_hosts_mesh DEVICES 4 MEMORY vmm
    ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=34)
if(TARGET test_hosts_faults)
    f8_add_cuda_run(hosts_faults COMMAND test_hosts_faults DEVICES 2 MEMORY legacy
        ENVIRONMENT CUDASIM_DELAY_US=200 CUDASIM_SEED=33)
    set_tests_properties(cuda_hosts_faults PROPERTIES LABELS "hosts;cuda" RUN_SERIAL ON)
endif()
# Without root: jobs at once, whose collectives must have one order on all hosts' devices.
foreach(hosts 2 3)
    f8_add_cuda_run(hosts_jobs_${hosts} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/hosts_jobs.sh
        ${CUDASIM_BIN}/f8gatherd $<TARGET_FILE:f8bench> ${hosts} 4 20 DEVICES 2 MEMORY legacy
        ENVIRONMENT CUDASIM_DELAY_US=300)
endforeach()
set_tests_properties(cuda_hosts_jobs_2 cuda_hosts_jobs_3 cuda_conformance_2_hosts cuda_conformance_2_hosts_devices
    cuda_conformance_3_hosts cuda_hosts_mesh cuda_hosts_mesh_devices PROPERTIES LABELS "hosts;cuda")
