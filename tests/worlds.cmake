# SPDX-License-Identifier: Apache-2.0
# Worlds of hosts: several in one process, over loopback.
add_library(worlds STATIC lib/worlds.c lib/world_peer.c)
target_link_libraries(worlds PUBLIC f8daemon PkgConfig::CHECK)
foreach(suite world world_form world_hostile world_interface world_lost)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS worlds)
endforeach()

# Many hosts at one root, for people: no ctest.
add_executable(bench_world bench_world.c)
target_link_libraries(bench_world PRIVATE f8daemon)
