# SPDX-License-Identifier: Apache-2.0
# The rounds: the state machine alone, linked directly, since it needs nothing but status codes.
set(ROUND_DIR ${CMAKE_CURRENT_SOURCE_DIR}/../daemon)

set(ROUND_REST ${ROUND_DIR}/round_query.c ${ROUND_DIR}/round_tables.c)

add_library(round_plain STATIC ${ROUND_DIR}/round.c ${ROUND_REST})
target_link_libraries(round_plain PUBLIC f8proto)

foreach(suite test_round test_round_broken test_round_death)
    f8_add_test(${suite} LABEL rounds SOURCES ${suite}.c lib/round_fixture.c LIBS round_plain)
endforeach()

# The model is linked to round.c as it is, and to copies with a fault each.
add_library(round_model STATIC lib/round_ops.c lib/round_model.c lib/round_invariants.c
    lib/round_explore.c lib/round_shapes.c)
target_link_libraries(round_model PUBLIC f8proto)

f8_add_test(test_round_explore LABEL rounds SOURCES test_round_explore.c
    LIBS round_model round_plain)
if(F8_SANITIZE)
    target_compile_definitions(test_round_explore PRIVATE EXPLORE_STATES_MAX=150000)
endif()

function(round_fault name invariant from to)
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${name}.c)
    set(test test_round_planted_${name})
    add_custom_command(
        OUTPUT ${copy}
        COMMAND ${CMAKE_COMMAND} -DFAULT=${name} -DIN=${ROUND_DIR}/round.c -DOUT=${copy}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/round_plant.cmake
        DEPENDS ${ROUND_DIR}/round.c round_faults.cmake round_plant.cmake
        VERBATIM)
    f8_add_test(${test} LABEL rounds
        SOURCES test_round_planted.c ${copy} ${ROUND_REST} LIBS round_model)
    target_compile_definitions(${test} PRIVATE "PLANTED_INVARIANT=\"${invariant}\"")
    # The explorer is to find the fault, not an assertion of round.c on the way there.
    set_source_files_properties(${copy} PROPERTIES COMPILE_DEFINITIONS NDEBUG)
endfunction()
include(round_faults.cmake)
