# SPDX-License-Identifier: Apache-2.0
# The client's tests: against a fake daemon, and of what is installed.
add_library(fake_daemon STATIC lib/fake_daemon.c lib/fake_daemon.h)
target_link_libraries(fake_daemon PUBLIC f8proto Threads::Threads)

foreach(suite test_channel test_channel_flow test_socket)
    f8_add_test(${suite} LABEL client SOURCES ${suite}.c lib/pings.c LIBS f8channel fake_daemon)
endforeach()
foreach(suite test_client test_client_groups test_client_state test_gather test_waits
        test_copy_out)
    f8_add_test(${suite} LABEL client SOURCES ${suite}.c lib/one_rank.c
        LIBS f8client_static fake_daemon)
endforeach()
foreach(suite test_client_repair test_client_alone)
    f8_add_test(${suite} LABEL client SOURCES ${suite}.c lib/one_rank.c lib/in_turn.c
        LIBS f8client_static fake_daemon)
endforeach()
f8_add_test(test_client_garbage LABEL client SOURCES fuzz/test_client_garbage.c
    LIBS f8client_static fake_daemon kernel_support)
if(F8_SANITIZE)
    target_compile_definitions(test_client_garbage PRIVATE GARBAGE_RUNS=300)
endif()

f8_add_test(test_client_device LABEL client SOURCES test_client_device.c lib/one_rank.c
    LIBS f8client_static fake_daemon ${CMAKE_DL_LIBS})

# Counts calls by replacing them, which the sanitizers do too.
if(NOT F8_SANITIZE)
    f8_add_test(test_step_cost LABEL client SOURCES test_step_cost.c lib/one_rank.c
        LIBS f8client_static fake_daemon)
endif()
target_compile_definitions(test_client PRIVATE F8_TRAINER="$<TARGET_FILE:trainer>")
add_dependencies(test_client trainer)

# Each installed header compiles alone, as C and as C++.
find_program(F8_CXX NAMES c++ g++ clang++)
foreach(header client/f8client.h client/f8types.h proto/status.h)
    get_filename_component(name ${header} NAME_WE)
    add_test(NAME header_c_${name} COMMAND ${CMAKE_C_COMPILER} -std=c11 -Wall -Wextra -Wpedantic
        -Werror -fsyntax-only -I ${CMAKE_SOURCE_DIR}/proto -x c ${CMAKE_SOURCE_DIR}/${header})
    set_tests_properties(header_c_${name} PROPERTIES LABELS client)
    if(F8_CXX)
        add_test(NAME header_cxx_${name} COMMAND ${F8_CXX} -std=c++11 -Wall -Wextra -Wpedantic
            -Werror -fsyntax-only -I ${CMAKE_SOURCE_DIR}/proto -x c++
            ${CMAKE_SOURCE_DIR}/${header})
        set_tests_properties(header_cxx_${name} PROPERTIES LABELS client)
    endif()
endforeach()

# The library exports what its header declares, under its version, and needs nothing else.
add_test(NAME exported_symbols COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/exported_symbols.sh
    $<TARGET_FILE:f8client> ${CMAKE_SOURCE_DIR}/client/f8client.h)
set_tests_properties(exported_symbols PROPERTIES LABELS client)

# Nothing that is installed links to CUDA or NCCL: one package serves hosts with and without GPUs.
add_test(NAME no_cuda_symbols COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/no_cuda_symbols.sh
    $<TARGET_FILE:f8client> $<TARGET_FILE:f8gatherd> $<TARGET_FILE:f8ctl> $<TARGET_FILE:f8bench>)
set_tests_properties(no_cuda_symbols PROPERTIES LABELS "client;cuda")
