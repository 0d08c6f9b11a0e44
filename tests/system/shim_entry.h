/* SPDX-License-Identifier: Apache-2.0 */
/* The shims' side of shim.h: where the process that a shim lives in counts. Any thread. */
#ifndef F8_TESTS_SHIM_ENTRY_H
#define F8_TESTS_SHIM_ENTRY_H

#include "tests/lib/shim.h"

/* This process's entry; NULL before the shim's constructor has run, or without a table. */
extern struct shim_entry *shim_self;

static inline void shim_add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

#endif
