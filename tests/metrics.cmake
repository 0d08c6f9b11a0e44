# SPDX-License-Identifier: Apache-2.0
# What the daemon counts: the text, HTTP, a real Prometheus parser, and the page that lists it all.
f8_add_test(test_metrics SOURCES test_metrics.c LIBS rooms)
set_tests_properties(test_metrics PROPERTIES LABELS "daemon;operator")

add_test(NAME metrics_texts COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/metrics_texts.py
    $<TARGET_FILE:f8gatherd> $<TARGET_FILE:f8ctl> ${CMAKE_SOURCE_DIR}/docs)
set_tests_properties(metrics_texts PROPERTIES LABELS "system;operator")

if(MICROHTTPD_FOUND)
    set(HAS_HTTP http)
else()
    set(HAS_HTTP none)
endif()
add_test(NAME metrics_parse COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/metrics_parse.sh
    $<TARGET_FILE:f8gatherd> $<TARGET_FILE:f8ctl> $<TARGET_FILE:f8bench> ${HAS_HTTP}
    ${CMAKE_SOURCE_DIR}/build/prometheus)
set_tests_properties(metrics_parse PROPERTIES LABELS "system;operator" SKIP_RETURN_CODE 77)

if(MICROHTTPD_FOUND)
    f8_add_test(test_metrics_http SOURCES system/test_metrics_http.c LIBS test_program)
    set_tests_properties(test_metrics_http PROPERTIES LABELS "system;operator")
endif()

# What a scraper costs, for people: no ctest.
if(MICROHTTPD_FOUND)
    add_executable(bench_metrics bench_metrics.c)
    target_link_libraries(bench_metrics PRIVATE measures_support m)
endif()
