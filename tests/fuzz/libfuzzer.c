/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scripts of session_fuzz.h for libFuzzer, which learns from coverage; built with -DF8_FUZZ=ON
 * by clang. A corpus to begin with comes from fuzz_seed.
 */
#include "tests/fuzz/session_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)fuzz_play(data, size);
    return 0;
}
