# SPDX-License-Identifier: Apache-2.0
# The sources of f8gatherd-cuda.so, for the module and for its double on the simulator.
set(F8_CUDA_MODULE_SOURCES module.c queue.c thread.c device.c driver.c error.c
    client.c memory.c memory_vmm.c arena.c arena_memory.c
    work.c work_plan.c work_batch.c work_ring.c results.c results_watch.c
    comm.c comm_form.c comm_end.c comm_exchange.c nccl_library.c)
list(TRANSFORM F8_CUDA_MODULE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

# f8_cuda_module(TARGET FOLDER LIBS targets...): the module at FOLDER/f8gather/f8gatherd-cuda.so.
# All that it exports is f8_backend_module; what it needs it must have been linked with.
function(f8_cuda_module target folder)
    cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
    add_library(${target} MODULE ${F8_CUDA_MODULE_SOURCES})
    target_link_libraries(${target} PRIVATE ${ARG_LIBS} Threads::Threads ${CMAKE_DL_LIBS})
    target_compile_options(${target} PRIVATE -fvisibility=hidden)
    target_include_directories(${target} PRIVATE
        $<TARGET_PROPERTY:f8proto,INTERFACE_INCLUDE_DIRECTORIES>)
    target_include_directories(${target} SYSTEM PRIVATE ${UV_INCLUDE_DIRS})
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME f8gatherd-cuda
        LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${folder}/f8gather)
    if(NOT F8_SANITIZE) # sanitizers' symbols are in the program
        target_link_options(${target} PRIVATE -Wl,--no-undefined)
    endif()
endfunction()
