# SPDX-License-Identifier: Apache-2.0
# The links between groups: the collective room over a world that a test saves and goes back to.
set(LINK_ROOMS
    collective.c collective_member.c collective_run.c collective_tasks.c collective_sync.c
    collective_rest.c collective_seal.c collective_reserve.c collective_device.c
    collective_landing.c collective_early.c collective_cause.c collective_shards.c collective_amax.c
    collective_sources.c collective_link.c device.c round.c round_query.c round_tables.c registry.c
    group.c weights.c weights_compare.c scaling.c history.c)
list(TRANSFORM LINK_ROOMS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/../daemon/)
set(LINK_HEAP -include ${CMAKE_CURRENT_SOURCE_DIR}/lib/link_heap_names.h)

add_library(link_rooms STATIC ${LINK_ROOMS} lib/link_state.c lib/link_hosts.c lib/link_count.c lib/link_names.c)
target_compile_options(link_rooms PRIVATE ${LINK_HEAP})
target_link_libraries(link_rooms PUBLIC f8proto f8kernels)
target_include_directories(link_rooms PUBLIC ${UV_INCLUDE_DIRS})

add_library(link_model STATIC lib/link_world.c lib/link_steps.c lib/link_model.c
    lib/link_invariants.c lib/link_explore.c lib/link_shapes.c lib/explored.c)
target_link_libraries(link_model PUBLIC f8proto f8kernels)

f8_add_test(test_link_explore LABEL links SOURCES test_link_explore.c LIBS link_model link_rooms
    link_model)
if(F8_SANITIZE)
    target_compile_definitions(test_link_explore PRIVATE EXPLORE_STATES_MAX=20000)
endif()

# The rooms once more, with a copy in place of the source that has the fault.
function(link_fault name source invariant from to)
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/link_${name}.c)
    set(in ${CMAKE_CURRENT_SOURCE_DIR}/../daemon/${source}.c)
    set(test test_link_planted_${name})
    add_custom_command(
        OUTPUT ${copy}
        COMMAND ${CMAKE_COMMAND} -DFAULTS=link_faults.cmake -DFAULT=${name} -DIN=${in}
            -DOUT=${copy} -P ${CMAKE_CURRENT_SOURCE_DIR}/plant.cmake
        DEPENDS ${in} link_faults.cmake plant.cmake
        VERBATIM)
    add_library(link_planted_${name} OBJECT ${copy})
    target_compile_options(link_planted_${name} PRIVATE ${LINK_HEAP})
    # The explorer is to find the fault, not an assertion on the way there.
    target_compile_definitions(link_planted_${name} PRIVATE NDEBUG)
    target_link_libraries(link_planted_${name} PUBLIC f8proto f8kernels)
    # Its object comes first, so that the library's own is not needed.
    f8_add_test(${test} LABEL links SOURCES test_link_planted.c
        $<TARGET_OBJECTS:link_planted_${name}> LIBS link_model link_rooms link_model)
    target_compile_definitions(${test} PRIVATE "PLANTED_INVARIANT=\"${invariant}\"")
endfunction()
include(link_faults.cmake)
