# SPDX-License-Identifier: Apache-2.0
# What is installed: the man pages against what they describe, the library's ABI, and the packages.
add_test(NAME man_pages COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/man_pages.py ${CMAKE_SOURCE_DIR}
    ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(man_pages PROPERTIES LABELS operator)
