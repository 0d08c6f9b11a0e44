# SPDX-License-Identifier: Apache-2.0
# What operators rely on: configuration files, signals, one daemon a socket, systemd's protocols.
f8_add_test(test_config_file LABEL operator
    SOURCES test_config_file.c lib/private_run.c LIBS f8daemon)
f8_add_test(test_config_environment LABEL operator SOURCES test_config_environment.c LIBS f8daemon)

f8_add_test(test_session_admin LABEL operator SOURCES test_session_admin.c LIBS device_group mesh)

f8_add_test(test_ctl_admin LABEL operator
    SOURCES system/test_ctl_admin.c lib/state_rank.c LIBS test_ranks test_program util)
if(TARGET f8gather-gloo)
    target_compile_definitions(test_ctl_admin PRIVATE F8_HAVE_GLOO)
    add_dependencies(test_ctl_admin f8gather-gloo)
endif()

f8_add_test(test_journal_daemon LABEL operator
    SOURCES system/test_journal_daemon.c lib/journal.c lib/private_run.c LIBS test_program test_ranks)
if(SYSTEMD_FOUND)
    f8_add_test(test_log_journal LABEL operator
        SOURCES test_log_journal.c lib/journal.c lib/private_run.c LIBS f8daemon)
    target_compile_definitions(test_journal_daemon PRIVATE F8_HAVE_SYSTEMD)
endif()

f8_add_test(test_doctor_host LABEL operator
    SOURCES system/test_doctor_host.c lib/findings.c lib/private_run.c LIBS test_program)
f8_add_test(test_doctor_memory LABEL operator
    SOURCES system/test_doctor_memory.c lib/findings.c lib/private_run.c LIBS test_program)

foreach(suite test_signals test_one_daemon test_service)
    f8_add_test(${suite} LABEL operator SOURCES system/${suite}.c LIBS test_ranks)
endforeach()
target_sources(test_one_daemon PRIVATE lib/proc.c)
if(SYSTEMD_FOUND)
    target_compile_definitions(test_service PRIVATE F8_HAVE_SYSTEMD)
endif()

add_test(NAME units COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/units.sh ${CMAKE_BINARY_DIR})
set_tests_properties(units PROPERTIES LABELS operator SKIP_RETURN_CODE 77)

# Under a booted systemd, in a container; by itself, for a boot takes both cores. A sanitizer does not
# live with what the unit forbids.
if(NOT F8_SANITIZE)
    add_test(NAME boot COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/boot.sh ${CMAKE_BINARY_DIR}
        $<TARGET_FILE:trainer_restart>)
    set_tests_properties(boot PROPERTIES LABELS operator SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()

# The examples of f8ctl(1), as the page has them, with a weight that there is to find.
add_executable(saturating_trainer saturating_trainer.c)
target_link_libraries(saturating_trainer PRIVATE f8client_static)
add_test(NAME man_examples COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/man_examples.py
    ${CMAKE_SOURCE_DIR}/docs/man/f8ctl.1.scd $<TARGET_FILE:f8gatherd> $<TARGET_FILE:f8ctl>
    $<TARGET_FILE:f8bench> $<TARGET_FILE:saturating_trainer>)
set_tests_properties(man_examples PROPERTIES LABELS "system;operator")

# Of other rooms, what operators rely on as well: settings, the log, the socket, stored states and
# f8ctl. `ctest -L operator` is all that they are promised.
set_property(TEST test_config test_listener test_log test_ctl test_ctl_doctor test_ctl_history
    test_ctl_transfer test_ctl_live test_state_form test_state_store test_state_seal
    test_state_import test_state_kill exported_symbols APPEND PROPERTY LABELS operator)
