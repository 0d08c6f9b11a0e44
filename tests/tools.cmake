# SPDX-License-Identifier: Apache-2.0
# Tests of f8bench's and f8ctl's rooms that need no daemon.
f8_add_test(test_check LABEL tools SOURCES test_check.c LIBS f8bench_check)
f8_add_test(test_check_delayed LABEL tools SOURCES test_check_delayed.c LIBS f8bench_check
    ENVIRONMENT VECTORS=${CMAKE_CURRENT_SOURCE_DIR}/vectors)
f8_add_test(test_safetensors LABEL tools SOURCES test_safetensors.c LIBS f8bench_model)
f8_add_test(test_model LABEL tools SOURCES test_model.c LIBS f8bench_model)
f8_add_test(test_source LABEL tools SOURCES test_source.c LIBS f8bench_source)
f8_add_test(test_layout LABEL tools SOURCES test_layout.c LIBS f8bench_layout)
f8_add_test(test_network LABEL hosts SOURCES test_network.c LIBS f8bench_network)
f8_add_test(test_exchange LABEL hosts SOURCES test_exchange.c LIBS f8bench_daemon)

# f8ctl as a whole program, against the fake daemon.
foreach(suite test_ctl test_ctl_devices test_ctl_doctor test_ctl_hosts test_ctl_history
        test_ctl_transfer test_ctl_width)
    f8_add_test(${suite} LABEL tools SOURCES ${suite}.c lib/ctl_run.c lib/ctl_fake.c
        lib/ctl_terminal.c
        LIBS fake_daemon PkgConfig::JANSSON ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
    add_dependencies(${suite} f8ctl)
endforeach()

# All that there is to show, for what draws and reports.
add_library(fake_fleet STATIC lib/fake_fleet.c lib/fake_fleet_views.c)
target_link_libraries(fake_fleet PUBLIC fake_daemon m)
add_executable(ctl_fleet ctl_fleet.c)
target_link_libraries(ctl_fleet PRIVATE fake_fleet)

# What it says of itself, which needs no daemon, and how that looks on a terminal.
f8_add_test(test_ctl_help SOURCES test_ctl_help.c lib/ctl_run.c lib/ctl_terminal.c
    ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
set_tests_properties(test_ctl_help PROPERTIES LABELS "tools;operator")
add_dependencies(test_ctl_help f8ctl)

# Its doctor between hosts that are network namespaces.
f8_add_test(test_ctl_path LABEL hosts SOURCES test_ctl_path.c lib/ctl_run.c LIBS f8bench_network
    ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
add_dependencies(test_ctl_path f8ctl)

# The report's page and the drawings: read by parsers, and looked at with a browser where one is.
foreach(suite valid browser)
    add_test(NAME ctl_report_${suite} COMMAND
        ${CMAKE_CURRENT_SOURCE_DIR}/system/report_${suite}.py $<TARGET_FILE:ctl_fleet>
        $<TARGET_FILE:f8ctl>)
    set_tests_properties(ctl_report_${suite} PROPERTIES LABELS "tools;operator"
        SKIP_RETURN_CODE 77)
endforeach()

# What it draws in a terminal, and what it says of counts.
foreach(suite test_ctl_plot test_ctl_stats)
    f8_add_test(${suite} SOURCES ${suite}.c lib/ctl_run.c lib/ctl_terminal.c
        LIBS fake_fleet PkgConfig::JANSSON ENVIRONMENT F8CTL=$<TARGET_FILE:f8ctl>)
    set_tests_properties(${suite} PROPERTIES LABELS "tools;operator")
    add_dependencies(${suite} f8ctl)
endforeach()

# The scripts by which shells complete f8ctl's words, in those shells that are here.
foreach(shell bash zsh fish)
    add_test(NAME ctl_completion_${shell} COMMAND
        ${CMAKE_CURRENT_SOURCE_DIR}/system/completion.sh $<TARGET_FILE:ctl_fleet>
        $<TARGET_FILE:f8ctl> ${shell})
    set_tests_properties(ctl_completion_${shell} PROPERTIES LABELS "tools;operator"
        SKIP_RETURN_CODE 77)
endforeach()
