# SPDX-License-Identifier: Apache-2.0
# What operators see live: events, and f8ctl watch, monitor and top.
f8_add_test(test_events SOURCES test_events.c LIBS f8daemon)
f8_add_test(test_session_watch SOURCES test_session_watch.c LIBS rooms)
set_tests_properties(test_events test_session_watch PROPERTIES LABELS "daemon;operator")

f8_add_test(test_monitor SOURCES system/test_monitor.c LIBS test_program test_ranks)
f8_add_test(test_watchers SOURCES system/test_watchers.c lib/admin_link.c lib/proc.c
    LIBS test_program)
if(F8_SANITIZE)
    target_compile_definitions(test_watchers PRIVATE F8_SANITIZED)
endif()
f8_add_test(test_top SOURCES system/test_top.c LIBS test_program test_ranks util)
set_tests_properties(test_monitor test_watchers test_top PROPERTIES LABELS "system;operator")

# Over hosts, where there is an engine for them.
if(TARGET f8gather-gloo)
    f8_add_test(test_monitor_hosts SOURCES system/test_monitor_hosts.c LIBS host_ranks test_program)
    set_tests_properties(test_monitor_hosts PROPERTIES LABELS "hosts;operator")
endif()
