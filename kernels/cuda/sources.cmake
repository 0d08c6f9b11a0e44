# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels and their launchers: what nvcc builds for devices and tests/cudasim for a CPU.
set(F8_CUDA_KERNEL_SOURCES)
foreach(f8_source amax dequantise launch scale write)
    list(APPEND F8_CUDA_KERNEL_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${f8_source}.cu)
endforeach()
