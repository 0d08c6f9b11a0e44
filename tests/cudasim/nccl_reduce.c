/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of reductions: integers, float and double. Ranks are combined from the lowest to
 * the highest, by every rank, so that all get the same bits. Called on streams' workers.
 */
#include <string.h>

#include "nccl_comm.h"

bool reduce_is_simulated(uint32_t type, uint32_t reduction)
{
    bool is_known = type == ncclInt8 || type == ncclUint8 || type == ncclInt32 ||
                    type == ncclUint32 || type == ncclInt64 || type == ncclUint64 ||
                    type == ncclFloat32 || type == ncclFloat64;
    return is_known && reduction < ncclNumOps;
}

/* Signed sums and products wrap around, as those of a GPU: they are made unsigned. */
#define REDUCE_CASE(value, c_type, wide_type)                                                      \
    case value:                                                                                    \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            c_type a, b;                                                                           \
            memcpy(&a, (char *)into + i * sizeof(a), sizeof(a));                                   \
            memcpy(&b, (const char *)from + i * sizeof(b), sizeof(b));                             \
            if (reduction == ncclMax)                                                              \
                a = b > a ? b : a;                                                                 \
            else if (reduction == ncclMin)                                                         \
                a = b < a ? b : a;                                                                 \
            else if (reduction == ncclProd)                                                        \
                a = (c_type)((wide_type)a * (wide_type)b);                                         \
            else                                                                                   \
                a = (c_type)((wide_type)a + (wide_type)b);                                         \
            memcpy((char *)into + i * sizeof(a), &a, sizeof(a));                                   \
        }                                                                                          \
        break

void reduce_add(uint32_t type, uint32_t reduction, void *into, const void *from, uint64_t count)
{
    switch (type) {
        REDUCE_CASE(ncclInt8, int8_t, uint64_t);
        REDUCE_CASE(ncclUint8, uint8_t, uint64_t);
        REDUCE_CASE(ncclInt32, int32_t, uint64_t);
        REDUCE_CASE(ncclUint32, uint32_t, uint64_t);
        REDUCE_CASE(ncclInt64, int64_t, uint64_t);
        REDUCE_CASE(ncclUint64, uint64_t, uint64_t);
        REDUCE_CASE(ncclFloat32, float, float);
        REDUCE_CASE(ncclFloat64, double, double);
    }
}

#define DIVIDE_CASE(value, c_type)                                                                 \
    case value:                                                                                    \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            c_type a;                                                                              \
            memcpy(&a, (char *)into + i * sizeof(a), sizeof(a));                                   \
            a = (c_type)(a / (c_type)ranks);                                                       \
            memcpy((char *)into + i * sizeof(a), &a, sizeof(a));                                   \
        }                                                                                          \
        break

void reduce_end(uint32_t type, uint32_t reduction, void *into, uint64_t count, int ranks)
{
    if (reduction != ncclAvg)
        return;
    switch (type) {
        DIVIDE_CASE(ncclInt8, int8_t);
        DIVIDE_CASE(ncclUint8, uint8_t);
        DIVIDE_CASE(ncclInt32, int32_t);
        DIVIDE_CASE(ncclUint32, uint32_t);
        DIVIDE_CASE(ncclInt64, int64_t);
        DIVIDE_CASE(ncclUint64, uint64_t);
        DIVIDE_CASE(ncclFloat32, float);
        DIVIDE_CASE(ncclFloat64, double);
    }
}
