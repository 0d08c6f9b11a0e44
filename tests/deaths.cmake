# SPDX-License-Identifier: Apache-2.0
# Ranks that die, as whole processes.
f8_add_test(test_death LABEL system SOURCES system/test_death.c LIBS test_daemon m)
if(F8_SANITIZE)
    # Slower by a factor of five and more: as long with less.
    target_compile_definitions(test_death PRIVATE DEATH_ROWS=128)
endif()
