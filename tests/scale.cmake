# SPDX-License-Identifier: Apache-2.0
# Scale: large models, and many jobs beside a greedy one.
f8_add_test(test_large_model LABEL system SOURCES system/test_large_model.c LIBS measures_support)
