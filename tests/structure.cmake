# SPDX-License-Identifier: Apache-2.0
# The shape of the tree: layers, sizes, and the README's copy of the example.
foreach(check layers files functions readme)
    add_test(NAME structure_${check}
        COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/structure.py ${check} ${CMAKE_SOURCE_DIR})
endforeach()
add_test(NAME structure_selftest
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/structure_selftest.py ${CMAKE_SOURCE_DIR})
set_tests_properties(structure_layers structure_files structure_functions structure_readme
    structure_selftest PROPERTIES LABELS structure SKIP_RETURN_CODE 77)
