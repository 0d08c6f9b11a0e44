# SPDX-License-Identifier: Apache-2.0
# Worlds of hosts: several in one process, over loopback.
add_library(worlds STATIC lib/worlds.c lib/world_peer.c)
target_link_libraries(worlds PUBLIC f8daemon PkgConfig::CHECK)
f8_add_test(test_world LABEL daemon SOURCES test_world.c LIBS worlds)
