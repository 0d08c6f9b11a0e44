# SPDX-License-Identifier: Apache-2.0
# The suites of whole processes once more, with their ranks on simulated GPUs: the same programs,
# told by the environment (lib/device_memory.h), against the daemon of sim/bin.
if(NOT TARGET f8gatherd_sim)
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
