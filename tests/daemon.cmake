# SPDX-License-Identifier: Apache-2.0
# The daemon's rooms, each alone, and the session over real rooms without a socket.
foreach(suite protocol names weights weights_compare scaling registry outq unpack config peer
        listener)
    f8_add_test(test_${suite} LABEL daemon SOURCES test_${suite}.c LIBS f8daemon)
endforeach()
