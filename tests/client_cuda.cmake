# SPDX-License-Identifier: Apache-2.0
# The client on CUDA devices: the driver's ABI as it declares it, where a toolkit's headers are, and
# its order and regions, on the simulated driver.
if(F8_CUDA_INCLUDE AND EXISTS ${F8_CUDA_INCLUDE}/cuda.h)
    f8_add_test(test_driver_abi LABEL cuda SOURCES cuda/test_driver_abi.c)
    target_include_directories(test_driver_abi SYSTEM PRIVATE ${F8_CUDA_INCLUDE})
endif()

if(NOT TARGET cudasim_cuda)
    return()
endif()
set(CUDASIM_LIB ${CMAKE_BINARY_DIR}/sim/lib)
foreach(suite test_client_cuda test_client_device_cuda test_client_regions_cuda)
    f8_add_cuda_test(${suite} SOURCES cuda/${suite}.c cuda/gpu_rank.c cuda/fake_gpu.c
        cuda/fake_gpu_daemon.c cuda/fake_gpu_memory.c lib/one_rank.c
        LIBS f8client_static fake_daemon cudasim
        ENVIRONMENT CUDASIM_DELAY_US=300 CUDASIM_SEED=7)
endforeach()
f8_add_cuda_test(test_bench_gpu SOURCES cuda/test_bench_gpu.c lib/one_rank.c
    ${CMAKE_SOURCE_DIR}/client/bench/gpu.c LIBS f8client_static fake_daemon
    ENVIRONMENT CUDASIM_DELAY_US=300)

# f8bench as a whole program on simulated devices, with the daemon whose module is simulated too.
if(TARGET f8gatherd_sim)
    add_test(NAME bench_cuda_modes COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/bench_modes.sh
        $<TARGET_FILE:f8bench> ${CMAKE_BINARY_DIR}/sim/bin/f8gatherd ${CUDASIM_LIB})
    set_tests_properties(bench_cuda_modes PROPERTIES LABELS "cuda;bench;system" TIMEOUT 600)
endif()
