# SPDX-License-Identifier: Apache-2.0
# What other tests use of the simulator: kernels for it, and tests on it.

# f8_add_sim_library(TARGET SOURCES files.cu... [LIBS targets...]): a shared library of unmodified
# CUDA sources, compiled for the CPU. Shared, as emulation.h wants it.
function(f8_add_sim_library target)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
    set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX)
    cudasim_library(${target} SOURCES ${ARG_SOURCES} LIBS cudasim_cudart ${ARG_LIBS})
    target_compile_features(${target} PRIVATE cxx_std_17)
    target_compile_options(${target} PRIVATE -include emulation.h -Wno-shadow
        -Wno-unknown-pragmas -fno-exceptions -fno-rtti)
    if(F8_SANITIZE) # slow enough as it is
        target_compile_options(${target} PRIVATE -O2)
    endif()
    # This check has a runtime of its own, for C++ only, which a C program is not linked with.
    if(F8_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
        target_compile_options(${target} PRIVATE -fno-sanitize=function)
    endif()
endfunction()

# f8_add_cuda_test(NAME SOURCES files... LIBS targets... [ENVIRONMENT name=value...]): as
# f8_add_test, with the simulated runtime and driver.
function(f8_add_cuda_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;ENVIRONMENT" ${ARGN})
    f8_add_test(${name} LABEL cuda SOURCES ${ARG_SOURCES}
        LIBS ${ARG_LIBS} cudasim_cudart cudasim_cuda
        ENVIRONMENT ${ARG_ENVIRONMENT} LD_LIBRARY_PATH=${CUDASIM_LIB})
    set_target_properties(${name} PROPERTIES BUILD_RPATH ${CUDASIM_LIB})
endfunction()

# The kernels of this project, and their suites, which run on a GPU too (cuda.cmake).
include(${CMAKE_SOURCE_DIR}/kernels/cuda/sources.cmake)
f8_add_sim_library(f8kernels_cuda_sim SOURCES ${F8_CUDA_KERNEL_SOURCES} LIBS f8kernels)
foreach(suite test_cuda_kernels test_cuda_scales)
    f8_add_cuda_test(${suite}_sim SOURCES ../${suite}.c ../lib/cuda_cases.c ../lib/cuda_device.c
        LIBS kernel_support f8kernels_cuda_sim)
endforeach()

# The way of devices before sm_89, which have no conversion to float8.
f8_add_sim_library(f8kernels_cuda_sim_software SOURCES ${F8_CUDA_KERNEL_SOURCES} LIBS f8kernels)
target_compile_definitions(f8kernels_cuda_sim_software PRIVATE F8CU_SOFTWARE_FP8)
f8_add_cuda_test(test_cuda_kernels_sim_software
    SOURCES ../test_cuda_kernels.c ../lib/cuda_cases.c ../lib/cuda_device.c
    LIBS kernel_support f8kernels_cuda_sim_software)

# A change of stack, of which each GPU thread needs several, is dear under sanitizers.
if(F8_SANITIZE)
    set(sparse 12)
    if(F8_SANITIZE STREQUAL thread)
        set(sparse 50)
    endif()
    foreach(suite test_cuda_kernels_sim test_cuda_kernels_sim_software)
        target_compile_definitions(${suite} PRIVATE SPARSE=${sparse})
    endforeach()
endif()

# What tests/gpu/run measures between processes on a GPU: here only that it works, in few rounds.
f8_add_sim_library(gpu_matmul_sim SOURCES ${CMAKE_SOURCE_DIR}/tests/gpu/matmul.cu)
foreach(bench bench_ipc bench_beside)
    add_executable(${bench}_sim ../gpu/${bench}.c ../gpu/twin.c ../lib/cuda_device.c)
    target_link_libraries(${bench}_sim PRIVATE f8kernels_cuda_sim gpu_matmul_sim cudasim_cudart)
    set_target_properties(${bench}_sim PROPERTIES BUILD_RPATH ${CUDASIM_LIB})
endforeach()
add_test(NAME cuda_bench_ipc COMMAND bench_ipc_sim 5)
add_test(NAME cuda_bench_beside COMMAND bench_beside_sim 1 10 32 64)
set_tests_properties(cuda_bench_ipc cuda_bench_beside PROPERTIES LABELS cuda
    ENVIRONMENT LD_LIBRARY_PATH=${CUDASIM_LIB})
