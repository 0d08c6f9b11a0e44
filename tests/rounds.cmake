# SPDX-License-Identifier: Apache-2.0
# The rounds: the state machine alone, linked directly, since it needs nothing but status codes.
set(ROUND_DIR ${CMAKE_CURRENT_SOURCE_DIR}/../daemon)

add_library(round_plain STATIC ${ROUND_DIR}/round.c ${ROUND_DIR}/round_query.c)
target_link_libraries(round_plain PUBLIC f8proto)

foreach(suite test_round test_round_broken)
    f8_add_test(${suite} LABEL rounds SOURCES ${suite}.c lib/round_fixture.c LIBS round_plain)
endforeach()
