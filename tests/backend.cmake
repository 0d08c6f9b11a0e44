# SPDX-License-Identifier: Apache-2.0
# Log, regions, arenas and backends. kernel_support gives the backends' tests their random elements.
f8_add_test(test_log LABEL daemon SOURCES test_log.c LIBS f8daemon)
f8_add_test(test_region LABEL daemon SOURCES test_region.c LIBS f8daemon)
f8_add_test(test_arena LABEL daemon SOURCES test_arena.c LIBS f8daemon)
f8_add_test(test_backend LABEL daemon SOURCES test_backend.c backend_contract.c
    backend_results.c backend_cancel.c LIBS f8daemon kernel_support)
