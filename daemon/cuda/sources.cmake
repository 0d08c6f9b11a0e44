# SPDX-License-Identifier: Apache-2.0
# The sources of f8gatherd-cuda.so, for the module and for its double on the simulator.
set(F8_CUDA_MODULE_SOURCES module.c queue.c thread.c device.c driver.c error.c
    client.c memory.c memory_vmm.c arena.c arena_memory.c
    work.c work_plan.c work_batch.c work_ring.c results.c results_watch.c
    comm.c comm_form.c comm_end.c comm_exchange.c nccl_library.c)
list(TRANSFORM F8_CUDA_MODULE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

# NCCL's header, of a version that has all that nccl_library.h knows; the library itself is looked
# for when the daemon runs. F8_NCCL_HEADER: whether it is there, and F8_NCCL_WHY if not.
find_path(F8_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME
    PATHS /usr/local/cuda PATH_SUFFIXES include)
set(F8_NCCL_OLDEST_HEADER 2.28.9)
set(F8_NCCL_HEADER FALSE)
set(F8_NCCL_WHY "nccl.h not found")
if(F8_NCCL_INCLUDE)
    file(STRINGS ${F8_NCCL_INCLUDE}/nccl.h F8_NCCL_VERSION REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" F8_NCCL_VERSION "${F8_NCCL_VERSION}")
    string(REPLACE ";" "." F8_NCCL_VERSION "${F8_NCCL_VERSION}")
    set(F8_NCCL_WHY "nccl.h is of NCCL ${F8_NCCL_VERSION}, needed is ${F8_NCCL_OLDEST_HEADER}")
    if(F8_NCCL_VERSION VERSION_GREATER_EQUAL F8_NCCL_OLDEST_HEADER)
        set(F8_NCCL_HEADER TRUE)
    endif()
endif()

# f8_cuda_module(TARGET FOLDER LIBS targets...): the module at FOLDER/f8gather/f8gatherd-cuda.so.
# All that it exports is f8_backend_module; what it needs it must have been linked with.
function(f8_cuda_module target folder)
    cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
    add_library(${target} MODULE ${F8_CUDA_MODULE_SOURCES})
    target_link_libraries(${target} PRIVATE ${ARG_LIBS} Threads::Threads ${CMAKE_DL_LIBS})
    target_compile_options(${target} PRIVATE -fvisibility=hidden)
    target_include_directories(${target} PRIVATE
        $<TARGET_PROPERTY:f8proto,INTERFACE_INCLUDE_DIRECTORIES>)
    target_include_directories(${target} SYSTEM PRIVATE ${UV_INCLUDE_DIRS} ${F8_NCCL_INCLUDE})
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME f8gatherd-cuda
        LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${folder}/f8gather)
    if(NOT F8_SANITIZE) # sanitizers' symbols are in the program
        target_link_options(${target} PRIVATE -Wl,--no-undefined)
    endif()
endfunction()
