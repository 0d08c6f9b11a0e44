/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the tests of NCCL and failing_nccl.c: a library that is the simulated NCCL but for one
 * function, which the test chooses, and which fails.
 */
#ifndef F8_TESTS_CUDA_FAILING_NCCL_H
#define F8_TESTS_CUDA_FAILING_NCCL_H

enum failing {
    FAILING_NOTHING,
    FAILING_VERSION, /* is 2.17.1 */
    FAILING_INIT,
    FAILING_INIT_HANGS, /* communicators are never ready */
    FAILING_WINDOW,
    FAILING_REDUCE,
    FAILING_GATHER,
    FAILING_LATER, /* communicators say that they have failed */
};

/* The library's symbol, a _Atomic int of enum failing. */
#define FAILING_SYMBOL "failing_nccl"

#endif
