# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels and their launchers: what nvcc builds for devices and tests/cudasim for a CPU.
# Included where either is done, and where the report of the compiler is checked.
set(F8_CUDA_KERNEL_SOURCES)
foreach(f8_source amax dequantise launch scale write)
    list(APPEND F8_CUDA_KERNEL_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${f8_source}.cu)
endforeach()

# How nvcc builds them. No contraction to FMA: NUMERICS promises the bits. Local memory is as good
# as a bug here. Nothing of libstdc++, because C programs link this.
set(F8_CUDA_FLAGS --fmad=false -Xptxas=--warn-on-spills,--warn-on-local-memory-usage
    -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics)
if(F8_WERROR)
    list(APPEND F8_CUDA_FLAGS -Werror=all-warnings)
endif()
