# SPDX-License-Identifier: Apache-2.0
# cmake -DFAULTS=round_faults.cmake -DFAULT=name -DIN=round.c -DOUT=copy.c -P plant.cmake
# Makes a copy of a source with one fault of a list in it. Fails if the text to change is not there
# exactly once: then the fault must be written anew for what the source has become.
function(plant name from to)
    if(NOT name STREQUAL FAULT)
        return()
    endif()
    file(READ "${IN}" text)
    string(FIND "${text}" "${from}" first)
    string(FIND "${text}" "${from}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "${FAULTS}: fault ${name}: this must be in ${IN} once:\n${from}")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
    file(WRITE "${OUT}" "${text}")
    set(PLANTED TRUE PARENT_SCOPE)
endfunction()

function(round_fault name invariant from to)
    plant("${name}" "${from}" "${to}")
    set(PLANTED ${PLANTED} PARENT_SCOPE)
endfunction()

function(link_fault name source invariant from to)
    plant("${name}" "${from}" "${to}")
    set(PLANTED ${PLANTED} PARENT_SCOPE)
endfunction()

set(PLANTED FALSE)
include(${CMAKE_CURRENT_LIST_DIR}/${FAULTS})
if(NOT PLANTED)
    message(FATAL_ERROR "${FAULTS} has no fault named '${FAULT}'")
endif()
