# SPDX-License-Identifier: Apache-2.0
# Works, landings and NCCL, through the operations of the module.
add_executable(cuda_trainer trainer_main.c)
target_link_libraries(cuda_trainer PRIVATE cudasim_cudart cudasim_cuda Threads::Threads)
set_target_properties(cuda_trainer PROPERTIES BUILD_RPATH ${CUDASIM_LIB})

add_library(cuda_fixture STATIC module_fixture.c trainer.c shards.c)
target_link_libraries(cuda_fixture PUBLIC kernel_support cudasim_cudart PkgConfig::CHECK
    PkgConfig::UV ${CMAKE_DL_LIBS})
target_compile_definitions(cuda_fixture PRIVATE
    CUDA_MODULE_PATH="${CUDASIM_LIB}/f8gather/f8gatherd-cuda.so")
add_dependencies(cuda_fixture f8gatherd_cuda_sim cuda_trainer)

foreach(suite work exchange nccl order steady results)
    f8_add_cuda_test(test_cuda_${suite} SOURCES test_cuda_${suite}.c LIBS cuda_fixture
        ENVIRONMENT CUDASIM_DEVICES=4 CUDASIM_DELAY_US=300)
endforeach()
# Two processes, of which none may have used CUDA when the other is forked: a test each its own.
if(NOT F8_SANITIZE MATCHES thread)
    f8_add_cuda_test(test_cuda_world SOURCES test_cuda_world.c LIBS cuda_fixture
        ENVIRONMENT CUDASIM_DEVICES=2 CUDASIM_DELAY_US=300)
    set_property(TEST test_cuda_world APPEND PROPERTY ENVIRONMENT CK_FORK=yes)
endif()
# Its functions stand in for the runtime's.
set_target_properties(test_cuda_results PROPERTIES ENABLE_EXPORTS ON)

cudasim_library(failing_nccl SOURCES failing_nccl.c LIBS cudasim_nccl ${CMAKE_DL_LIBS})
target_link_options(failing_nccl PRIVATE -Wl,--no-as-needed)
target_compile_definitions(test_cuda_nccl PRIVATE
    FAILING_NCCL_PATH="$<TARGET_FILE:failing_nccl>")
add_dependencies(test_cuda_nccl failing_nccl)
