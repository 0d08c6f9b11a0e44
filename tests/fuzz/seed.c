/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the script of a whole run to stdout, on devices if it has any argument: the first members
 * of libFuzzer's corpus.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/session_fuzz.h"

int main(int argc, char **argv)
{
    static uint8_t run[FUZZ_SCRIPT];
    size_t size = fuzz_whole_run(run, argc > 1);
    (void)argv;
    return fwrite(run, 1, size, stdout) == size && fflush(stdout) == 0 ? EXIT_SUCCESS
                                                                       : EXIT_FAILURE;
}
