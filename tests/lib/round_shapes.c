/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes that the explorer of round_explore.h goes through: where places are, how the ranks'
 * programs differ, what work there is besides the runs.
 */
#include "tests/lib/round_explore.h"

const struct model_shape model_shapes[] = {
    {
        .name = "own places",
        .programs = {"EPABaAba", "EPABaAba", "EPABaAba"},
        .depth = 4,
    },
    {
        .name = "own places, other orders of release, shallow",
        .programs = {"EPABaAba", "EPABbaAa", "EPAaBbAa"},
        .depth = 2,
    },
    {
        .name = "one slot",
        .programs = {"EPAaBbAa", "EPAaBbAa", "EPAaBbAa"},
        .slots = 1,
        .depth = 4,
        .shared = {true, true, true},
    },
    {
        .name = "two slots, other orders of release",
        .programs = {"EABaAbaBb", "EABbaABab", "EABabAaBb"},
        .slots = 2,
        .depth = 4,
        .shared = {true, true, true},
    },
    {
        .name = "three buckets in two slots",
        .programs = {"EABbCac", "EABaCbc", "EABbCac"},
        .slots = 2,
        .depth = 4,
        .shared = {true, true, true},
    },
    {
        .name = "a slot and an own place, poison",
        .programs = {"EPABaAba", "EPABbaAa", "EPABaAba"},
        .slots = 1,
        .depth = 4,
        .shared = {true, false},
        .poison = true,
    },
    {
        .name = "own places, poison, prepare",
        .programs = {"ExAaxAa", "ExAaxAa", "EAaxAa"},
        .depth = 4,
        .poison = true,
        .idle = true,
    },
    {
        .name = "two slots, prepare, poison",
        .programs = {"ExAyBaAb", "EAyBbAa", "ExABaAb"},
        .slots = 2,
        .depth = 3,
        .shared = {true, true, true},
        .poison = true,
    },
    {
        .name = "a mismatch",
        .programs = {"EPxABab", "EPBA", "EPABab"},
        .depth = 4,
    },
    {
        .name = "quiesce",
        .programs = {"ExPqAaq", "EPAaPq", "EPqyAab"},
        .depth = 4,
        .poison = true,
    },
    {
        .name = "a start that refuses",
        .programs = {"EAxBab", "EABab", "EABab"},
        .depth = 4,
        .refused = true,
    },
    {
        .name = "prepare",
        .programs = {"ExPyABaxAb", "ExPAyBaAb", "EPABaxAb"},
        .depth = 4,
    },
    {.name = NULL},
};
