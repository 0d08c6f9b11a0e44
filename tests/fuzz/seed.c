/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the script of a whole run to stdout: the first member of libFuzzer's corpus. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/session_fuzz.h"

int main(void)
{
    static uint8_t run[FUZZ_SCRIPT];
    size_t size = fuzz_whole_run(run);
    return fwrite(run, 1, size, stdout) == size && fflush(stdout) == 0 ? EXIT_SUCCESS
                                                                       : EXIT_FAILURE;
}
