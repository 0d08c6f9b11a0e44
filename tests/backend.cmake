# SPDX-License-Identifier: Apache-2.0
# Log, regions, arenas and backends. kernel_support gives the backends' tests their random elements.
f8_add_test(test_log LABEL daemon SOURCES test_log.c lib/private_run.c LIBS f8daemon)
f8_add_test(test_region LABEL daemon SOURCES test_region.c LIBS f8daemon)
f8_add_test(test_arena LABEL daemon SOURCES test_arena.c LIBS f8daemon)
f8_add_test(test_backend LABEL daemon SOURCES test_backend.c backend_contract.c
    backend_results.c backend_cancel.c LIBS f8daemon kernel_support)

# Modules for the daemon to open that have nothing of CUDA: one as it must be, and each wrong one.
function(f8_fake_module name)
    add_library(${name} MODULE lib/cuda_module.c)
    target_compile_definitions(${name} PRIVATE ${ARGN})
    target_link_libraries(${name} PRIVATE PkgConfig::UV Threads::Threads)
    target_include_directories(${name} PRIVATE
        $<TARGET_PROPERTY:f8proto,INTERFACE_INCLUDE_DIRECTORIES>)
    set_target_properties(${name} PROPERTIES PREFIX ""
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/modules)
    add_dependencies(test_backend_cuda ${name})
endfunction()

f8_add_test(test_backend_cuda LABEL daemon SOURCES test_backend_cuda.c LIBS f8daemon)
target_compile_definitions(test_backend_cuda PRIVATE
    TEST_MODULES="${CMAKE_BINARY_DIR}/tests/modules")
f8_fake_module(module_right)
f8_fake_module(module_no_symbol MODULE_HAS_NO_SYMBOL)
f8_fake_module(module_unresolved MODULE_NEEDS=f8_test_function_that_nobody_has)
f8_fake_module(module_other_abi MODULE_ABI=4711)
f8_fake_module(module_other_version MODULE_VERSION="99.1")
