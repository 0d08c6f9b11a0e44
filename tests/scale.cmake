# SPDX-License-Identifier: Apache-2.0
# Scale: large models, and many jobs beside a greedy one.
f8_add_test(test_large_model LABEL system SOURCES system/test_large_model.c LIBS measures_support)

# Speed, for people: no ctest.
add_executable(bench_fairness bench_fairness.c)
target_link_libraries(bench_fairness PRIVATE measures_support)
