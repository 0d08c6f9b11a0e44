# SPDX-License-Identifier: Apache-2.0
# What operators rely on: configuration files, signals, one daemon a socket, systemd's protocols.
f8_add_test(test_config_file LABEL operator SOURCES test_config_file.c LIBS f8daemon)

foreach(suite test_signals test_one_daemon test_service)
    f8_add_test(${suite} LABEL operator SOURCES system/${suite}.c LIBS test_ranks)
endforeach()
if(SYSTEMD_FOUND)
    target_compile_definitions(test_service PRIVATE F8_HAVE_SYSTEMD)
endif()

add_test(NAME units COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/units.sh ${CMAKE_BINARY_DIR})
set_tests_properties(units PROPERTIES LABELS operator SKIP_RETURN_CODE 77)

# Under a booted systemd, in a container; by itself, for a boot takes both cores. A sanitizer does not
# live with what the unit forbids.
if(NOT F8_SANITIZE)
    add_test(NAME boot COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/boot.sh ${CMAKE_BINARY_DIR})
    set_tests_properties(boot PROPERTIES LABELS operator SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
