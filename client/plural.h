/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "1 group", "2 groups": the ending of a regular noun after its count. For the texts of f8ctl and
 * f8bench; owns nothing, any thread.
 */
#ifndef F8_CLIENT_PLURAL_H
#define F8_CLIENT_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
