/* SPDX-License-Identifier: Apache-2.0 */
/* f8ctl in a pipe: see ctl_run.h. */
#include "tests/lib/ctl_run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int ctl_run(const char *arguments, char *text, size_t size)
{
    char command[1024];
    const char *program = getenv("F8CTL");
    FILE *pipe;
    size_t length;

    ck_assert_msg(program != NULL, "F8CTL must name the program to test");
    snprintf(command, sizeof(command), "%s %s 2>&1", program, arguments);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    length = fread(text, 1, size - 1, pipe);
    text[length] = '\0';
    return WEXITSTATUS(pclose(pipe));
}
