# SPDX-License-Identifier: Apache-2.0
# What is installed: the man pages against what they describe, the library's ABI, and the packages.
add_test(NAME man_pages COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/man_pages.py ${CMAKE_SOURCE_DIR}
    ${CMAKE_BINARY_DIR}/bin)
set_tests_properties(man_pages PROPERTIES LABELS operator)

# Those below look at what is shipped, which no sanitizer is in.
if(F8_SANITIZE)
    return()
endif()

add_test(NAME library_abi COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/packages/abi.sh
    $<TARGET_FILE:f8client> ${CMAKE_SOURCE_DIR})
add_test(NAME install COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/packages/install.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_BINARY_DIR})
set_tests_properties(library_abi install PROPERTIES LABELS operator SKIP_RETURN_CODE 77)

# Once, not with each compiler. It builds the tree anew, as a package is: on both of ctest's cores.
if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo)
    add_test(NAME packages COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/packages/packages.sh
        ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/packages)
    set_tests_properties(packages PROPERTIES LABELS operator SKIP_RETURN_CODE 77 PROCESSORS 2
        TIMEOUT 1800) # a whole build, and a new system from the network
endif()
