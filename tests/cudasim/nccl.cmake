# SPDX-License-Identifier: Apache-2.0
# The simulated NCCL, and its tests. Needs nccl.h, not the library.
find_path(F8_NCCL_INCLUDE nccl.h HINTS ${F8_CUDA_INCLUDE} ENV NCCL_HOME PATH_SUFFIXES include)
if(NOT F8_NCCL_INCLUDE)
    message(STATUS "No nccl.h: the tests on a simulated NCCL are left out")
    return()
endif()

cudasim_library(cudasim_nccl OUTPUT nccl VERSION 2 LIBS cudasim cudasim_cudart cudasim_cuda
    SOURCES nccl_collective.c nccl_comm.c nccl_error.c nccl_group.c nccl_init.c nccl_launch.c
    nccl_memory.c nccl_message.c nccl_order.c nccl_reduce.c nccl_segment.c nccl_window.c)
target_include_directories(cudasim_nccl SYSTEM PUBLIC ${F8_NCCL_INCLUDE})
target_link_options(cudasim_nccl PRIVATE
    -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/nccl.map)
set_target_properties(cudasim_nccl PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/nccl.map)

add_library(nccl_support STATIC nccl_support.c)
target_link_libraries(nccl_support PUBLIC cudasim_nccl PkgConfig::CHECK)

foreach(suite test_nccl test_nccl_init test_nccl_processes test_nccl_strict test_nccl_window)
    f8_add_cuda_test(${suite} SOURCES ${suite}.c LIBS nccl_support)
endforeach()
