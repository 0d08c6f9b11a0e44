# SPDX-License-Identifier: Apache-2.0
# The simulator's own tests: what must work, and what must be found.
add_library(cudasim_child STATIC child.c)
target_link_libraries(cudasim_child PUBLIC PkgConfig::CHECK)
f8_add_sim_library(cudasim_test_kernels SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_kernels.cu)

foreach(suite test_cudasim test_cudasim_strict test_cudasim_driver test_cudasim_ipc test_emulation)
    f8_add_cuda_test(${suite} SOURCES ${suite}.c LIBS cudasim_child cudasim_test_kernels)
endforeach()
