# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels as nvcc builds them: what the compiler says of them, and their contract suites,
# which need a GPU and skip without one. tests/cudasim runs the same suites on the simulator.
if(NOT TARGET f8kernels_cuda)
    return()
endif()

set(F8_CUDA_SUITE_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/lib/cuda_cases.c
    ${CMAKE_CURRENT_SOURCE_DIR}/lib/cuda_device.c)
foreach(suite test_cuda_kernels test_cuda_scales)
    f8_add_test(${suite} LABEL cuda SOURCES ${suite}.c ${F8_CUDA_SUITE_SOURCES}
        LIBS kernel_support f8kernels_cuda CUDA::cudart_static)
endforeach()

include(${CMAKE_SOURCE_DIR}/kernels/cuda/sources.cmake)
string(REPLACE ";" "," f8_architectures "${CMAKE_CUDA_ARCHITECTURES}")
add_test(NAME cuda_resources
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda_resources.py ${CMAKE_CUDA_COMPILER}
    ${CMAKE_SOURCE_DIR} ${f8_architectures} ${F8_CUDA_KERNEL_SOURCES} -- -std=c++17 ${F8_CUDA_FLAGS})
add_test(NAME cuda_resources_selftest
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda_resources.py --selftest ${CMAKE_CUDA_COMPILER})
set_tests_properties(cuda_resources cuda_resources_selftest PROPERTIES LABELS cuda TIMEOUT 600)

# The module has the CUDA runtime in it and needs nothing of CUDA's besides; the daemon, f8ctl and
# the library have nothing of CUDA at all.
add_test(NAME cuda_linking COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/linking.sh
    ${CMAKE_NM} ${CMAKE_READELF} $<TARGET_FILE:f8gatherd_cuda>
    $<TARGET_FILE:f8gatherd> $<TARGET_FILE:f8ctl> $<TARGET_FILE:f8client>)
set_tests_properties(cuda_linking PROPERTIES LABELS cuda)

# Speed, for people with a GPU: no ctest.
add_executable(bench_cuda_kernels gpu/bench_cuda_kernels.c lib/cuda_device.c)
target_link_libraries(bench_cuda_kernels PRIVATE kernel_support f8kernels_cuda CUDA::cudart_static)

# The same between processes: tests/gpu/run runs all three. Users' matrices may be contracted.
set(F8_CUDA_MATMUL_FLAGS ${F8_CUDA_FLAGS})
list(REMOVE_ITEM F8_CUDA_MATMUL_FLAGS --fmad=false)
add_executable(bench_ipc gpu/bench_ipc.c gpu/twin.c lib/cuda_device.c)
target_link_libraries(bench_ipc PRIVATE CUDA::cudart_static)
add_library(gpu_matmul OBJECT gpu/matmul.cu)
set_target_properties(gpu_matmul PROPERTIES CUDA_STANDARD 17 CUDA_EXTENSIONS OFF)
target_compile_options(gpu_matmul PRIVATE ${F8_CUDA_MATMUL_FLAGS})
add_executable(bench_beside gpu/bench_beside.c gpu/twin.c lib/cuda_device.c
    $<TARGET_OBJECTS:gpu_matmul>)
target_link_libraries(bench_beside PRIVATE f8kernels_cuda CUDA::cudart_static)
