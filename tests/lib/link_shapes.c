/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of link_explore.h: first those that are seen in no time, then those with faults. */
#include "tests/lib/link_explore.h"

/* Data x tensor parallel: A and B hold parts of the same weights, W is over all ranks. */
#define TENSOR_PARALLEL(kinds)                                                                     \
    {                                                                                              \
        {'A', 3, 'W', kinds}, {'B', 4, 'W', kinds},                                                \
        {                                                                                          \
            'W', 7, '\0', ""                                                                       \
        }                                                                                          \
    }

/* Two groups of the same ranks, which have nothing to do with each other. */
#define SIDE_BY_SIDE                                                                               \
    {                                                                                              \
        {'A', 7, '\0', "d"},                                                                       \
        {                                                                                          \
            'B', 7, '\0', "s"                                                                      \
        }                                                                                          \
    }

#define IN_A "jWjAsA.sW|."
#define IN_B "jWjBsB.sW|."

const struct link_shape link_shapes[] = {
    {
        .name = "exchange, twice",
        .groups = TENSOR_PARALLEL("dd"),
        .programs = {IN_A "gA0gA1.rA0gA0.", IN_A "gA0gA1.rA0gA0.", IN_B "gB0gB1.rB0gB0."},
    },
    {
        .name = "precompute, gathers, sync",
        .groups = TENSOR_PARALLEL("dy"),
        .programs = {IN_A "pWgA0gA1.yWrA1gA1.", IN_A "pWgA0gA1.yWrA1gA1.",
            IN_B "pWgB0.gB1.yWrB1gB1."},
    },
    {
        .name = "gathers and precompute in one breath",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0pW.rA0gA0", IN_A "gA0pWrA0gA0.", IN_B "gB0pWrB0gB0"},
    },
    {
        .name = "pre-gathers, invalidate",
        .groups = TENSOR_PARALLEL("dy"),
        .programs = {IN_A "xA0xA1gA0gA1.iWrA0gA0.", IN_A "gA0xA1gA1.iWrA0gA0.",
            IN_B "xB0gB0gB1.iWrB0gB0."},
    },
    {
        .name = "a bucket in two sources",
        .groups = {{'A', 7, 'W', "d"}, {'B', 7, 'W', "E"}, {'W', 7, '\0', ""}},
        .programs = {"jWjA|jBsA.sB.sW.gA0gB0", "jWjA|jBsA.sB.sW.gA0gB0", "jWjA|jBsA.sB.sW.gB0gA0"},
        .crossed = true,
    },
    {
        .name = "pre-gathers of the amax group",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "xW0gA0.xW0rA0.", IN_A "gA0.", IN_B "xW0gB0."},
    },
    {
        .name = "buckets in another order",
        .groups = TENSOR_PARALLEL("dd"),
        .programs = {IN_A "gA0gA1.", IN_A "gA0gA1.", IN_B "gB1gB0."},
        .crossed = true,
    },
    {
        .name = "a rank that does not gather",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.", IN_A "gA0.", IN_B "pW.gB0."},
        .crossed = true,
    },
    {
        .name = "ranks that precompute and gather in another order",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.pW.", IN_A "pWgA0.", IN_B "pWgB0."},
        .crossed = true,
    },
    {
        .name = "versions that differ",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "cA0gA0.", IN_A "cA0cA0gA0.", IN_B "gB0."},
        .crossed = true,
    },
    {
        .name = "exchange and a death",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.", IN_A "gA0.", IN_B "gB0."},
        .faults = 1,
        .deaths = true,
    },
    {
        .name = "exchange and a leave",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.", IN_A "gA0.", IN_B "gB0."},
        .faults = 1,
        .leaves = true,
    },
    {
        .name = "precompute, gathers and a death",
        .groups = TENSOR_PARALLEL("y"),
        .programs = {IN_A "gA0.yWrA0gA0.", IN_A "gA0.yWrA0gA0.", IN_B "gB0.yWrB0gB0."},
        .faults = 1,
        .deaths = true,
    },
    {
        .name = "deadlines",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.pW.", IN_A "gA0.pW.", IN_B "gB0.pW."},
        .faults = 1,
        .deadlines = true,
    },
    {
        .name = "an arena that cannot be had",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {"|jWjAsA.sW.gA0.", "|jWjAsA.sW.gA0.", "|jWjBsB.sW.gB0."},
        .faults = 1,
        .failures = true,
    },
    {
        .name = "a death before all is sealed",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {"|jWjAsA.sW.", "|jWjAsA.sW.", "|jWjBsB.sW."},
        .faults = 1,
        .deaths = true,
    },
    {
        .name = "a death during seals, without waiting",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {"jWjA|sA.sWgA0.", "jWjA|sA.sWgA0.", "jWjB|sB.sWgB0."},
        .again = {"jAsA.jWsW.gA0.", "jAsA.jWsW.gA0."},
        .faults = 1,
        .deaths = true,
        .hasty = true,
    },
    {
        .name = "two deaths",
        .groups = TENSOR_PARALLEL("d"),
        .programs = {IN_A "gA0.", IN_A "gA0.", IN_B "gB0."},
        .faults = 2,
        .deaths = true,
    },
    {
        .name = "a source that is sealed with its amax group",
        .groups = {{'A', 7, 'W', "d"}, {'B', 4, 'W', "D"}, {'W', 7, '\0', ""}},
        .programs = {"jWjAsA|.sW.gA0.", "jWjAsA|.sW.gA0.", "jWjAjBsA|.sBsWgA0gB0."},
        .faults = 1,
        .deaths = true,
        .crossed = true,
    },
    {
        .name = "two groups side by side",
        .groups = SIDE_BY_SIDE,
        .programs = {"jAjBsAsB|.gA0gB0rA0.", "jBjAsBsA|.gB0gA0rA0.", "jAjBsAsB|.gA0.gB0rA0."},
        .faults = 1,
        .deaths = true,
    },
    {.name = NULL},
};
