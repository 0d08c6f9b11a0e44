# SPDX-License-Identifier: Apache-2.0
# Whole-process tests of misuse, faults and death.
add_library(test_ranks STATIC lib/ranks.c lib/raw_client.c)
target_link_libraries(test_ranks PUBLIC test_daemon m)
target_include_directories(test_ranks SYSTEM PUBLIC
    $<TARGET_PROPERTY:f8proto,INTERFACE_INCLUDE_DIRECTORIES>)

f8_add_test(test_misuse LABEL system SOURCES system/test_misuse.c system/misuse_order.c
    system/misuse_register.c system/misuse_ranks.c system/misuse_memory.c system/misuse_limits.c
    system/misuse_packets.c LIBS test_ranks)

# Sanitizers are five to ten times slower: fewer repetitions of what is random or counted.
if(F8_SANITIZE)
    target_compile_definitions(test_ranks PUBLIC F8_TEST_SCALE=2)
else()
    target_compile_definitions(test_ranks PUBLIC F8_TEST_SCALE=10)
endif()

set(F8_MISUSE_SUITES test_garbage test_flood test_interrupt test_gathered test_rank_death
    test_daemon_end)
foreach(suite ${F8_MISUSE_SUITES})
    f8_add_test(${suite} LABEL system SOURCES system/${suite}.c LIBS test_ranks)
endforeach()

# Amax groups over several gather groups, by real clients.
f8_add_test(test_mesh LABEL system SOURCES system/test_mesh.c lib/mesh_rank.c
    LIBS test_ranks f8kernels)
