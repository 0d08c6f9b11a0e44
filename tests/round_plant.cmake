# SPDX-License-Identifier: Apache-2.0
# cmake -DFAULT=name -DIN=round.c -DOUT=copy.c -P round_plant.cmake
# Makes a copy of round.c with one fault of round_faults.cmake in it. Fails if the text to change
# is not there exactly once: then the fault must be written anew for what round.c has become.
function(round_fault name invariant from to)
    if(NOT name STREQUAL FAULT)
        return()
    endif()
    file(READ "${IN}" text)
    string(FIND "${text}" "${from}" first)
    string(FIND "${text}" "${from}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "round_faults.cmake: fault ${name}: this must be in ${IN} once:\n${from}")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
    file(WRITE "${OUT}" "${text}")
    set(PLANTED TRUE PARENT_SCOPE)
endfunction()

set(PLANTED FALSE)
include(${CMAKE_CURRENT_LIST_DIR}/round_faults.cmake)
if(NOT PLANTED)
    message(FATAL_ERROR "round_faults.cmake has no fault named '${FAULT}'")
endif()
