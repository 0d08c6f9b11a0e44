# SPDX-License-Identifier: Apache-2.0
# Stored scaling states: forms and files by themselves, then with a daemon that is killed.
add_library(state_fixture STATIC lib/state_fixture.c)
target_include_directories(state_fixture PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(state_fixture PUBLIC f8daemon PkgConfig::CHECK)

foreach(suite test_state_form test_state_store)
    f8_add_test(${suite} LABEL state SOURCES ${suite}.c LIBS state_fixture)
endforeach()

add_library(snapshot_fixture STATIC lib/snapshot_fixture.c)
target_link_libraries(snapshot_fixture PUBLIC state_fixture)
foreach(suite test_state_aside test_state_keep test_state_snapshot test_state_snapshot_kill
        test_state_snapshot_lost test_state_settle)
    f8_add_test(${suite} SOURCES ${suite}.c LIBS snapshot_fixture)
    set_tests_properties(${suite} PROPERTIES LABELS "state;operator")
endforeach()

f8_add_test(test_state_seal LABEL system SOURCES system/test_state_seal.c lib/state_rank.c
    LIBS test_daemon)
f8_add_test(test_state_import LABEL system
    SOURCES system/test_state_import.c lib/state_rank.c lib/admin_link.c
    LIBS test_daemon f8proto ZLIB::ZLIB)
f8_add_test(test_state_kill LABEL system SOURCES system/test_state_kill.c LIBS test_daemon)
if(F8_SANITIZE)
    # Slower by a factor of five and more: fewer kills, each with as much of the run before it.
    target_compile_definitions(test_state_kill PRIVATE KILLS=40 MOMENT_MS=200)
endif()
f8_add_test(test_snapshot
    SOURCES system/test_snapshot.c lib/state_rank.c lib/admin_link.c LIBS test_daemon f8proto)
set_tests_properties(test_snapshot PROPERTIES LABELS "system;operator")

# Its JSON form, by f8ctl as a whole program, against the fake daemon.
f8_add_test(test_ctl_state_json SOURCES test_ctl_state_json.c lib/ctl_run.c lib/ctl_fake.c
    lib/ctl_terminal.c
    LIBS fake_daemon state_fixture PkgConfig::JANSSON ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
set_tests_properties(test_ctl_state_json PROPERTIES LABELS "tools;operator")
add_dependencies(test_ctl_state_json f8ctl)

# One call for a trainer whose daemon has ended, or none.
f8_add_test(test_reconnect SOURCES system/test_reconnect.c LIBS test_daemon)
if(F8_SANITIZE)
    target_compile_definitions(test_reconnect PRIVATE KILLS=30 MOMENT_US=150000)
endif()
f8_add_test(test_reconnect_calls SOURCES system/test_reconnect_calls.c LIBS test_daemon)
f8_add_test(test_reconnect_itself SOURCES system/test_reconnect_itself.c LIBS test_daemon)
set_tests_properties(test_reconnect test_reconnect_calls test_reconnect_itself
    PROPERTIES LABELS "system;operator")
if(TARGET f8gather-gloo)
    add_dependencies(test_reconnect_calls f8gather-gloo)
    add_dependencies(test_reconnect_itself f8gather-gloo)
endif()
add_test(NAME trainer_restart COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/trainer_restart.sh
    $<TARGET_FILE:f8gatherd> $<TARGET_FILE:trainer_restart> $<TARGET_FILE:f8ctl>)
set_tests_properties(trainer_restart PROPERTIES LABELS "system;operator")

# A disk that holds up, fails, and loses what was not synced (shim_disk is hosts.cmake's).
f8_add_test(test_snapshot_durable SOURCES system/test_snapshot_durable.c lib/slow_disk.c
    lib/state_rank.c lib/admin_link.c lib/shim.c LIBS test_daemon f8proto
    ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
target_compile_definitions(test_snapshot_durable PRIVATE F8_SHIM_DISK="$<TARGET_FILE:shim_disk>")
add_dependencies(test_snapshot_durable shim_disk f8ctl)
set_tests_properties(test_snapshot_durable PROPERTIES LABELS "system;operator")
