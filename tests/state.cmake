# SPDX-License-Identifier: Apache-2.0
# Stored scaling states: forms and files by themselves, then with a daemon that is killed.
add_library(state_fixture STATIC lib/state_fixture.c)
target_include_directories(state_fixture PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(state_fixture PUBLIC f8daemon PkgConfig::CHECK)

foreach(suite test_state_form test_state_store)
    f8_add_test(${suite} LABEL state SOURCES ${suite}.c LIBS state_fixture)
endforeach()
