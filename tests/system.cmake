# SPDX-License-Identifier: Apache-2.0
# Whole-process tests: a real daemon, real ranks.
add_library(test_daemon STATIC lib/test_daemon.c)
target_include_directories(test_daemon PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(test_daemon PUBLIC device_memory PkgConfig::CHECK PkgConfig::PROTOBUF_C)
target_compile_definitions(test_daemon PUBLIC F8_TEST_DAEMON="$<TARGET_FILE:f8gatherd>"
    F8_TEST_CTL="$<TARGET_FILE:f8ctl>" F8_TEST_BENCH="$<TARGET_FILE:f8bench>")
add_dependencies(test_daemon f8gatherd f8ctl f8bench)
