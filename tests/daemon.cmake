# SPDX-License-Identifier: Apache-2.0
# The daemon's rooms, each alone, and the session over real rooms without a socket.
foreach(suite protocol names weights weights_compare scaling registry outq unpack config peer
        listener)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS f8daemon)
endforeach()

# Sessions without a socket: the fixture turns the loop.
add_library(rooms STATIC lib/rooms.c lib/rooms_ask.c)
target_link_libraries(rooms PUBLIC f8daemon PkgConfig::CHECK)

foreach(suite session session_groups)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS rooms)
endforeach()
