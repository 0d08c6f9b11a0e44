/* SPDX-License-Identifier: Apache-2.0 */
/* Runs f8ctl as a shell would; $F8CTL names it. For tests against a fake daemon. */
#ifndef F8_TESTS_CTL_RUN_H
#define F8_TESTS_CTL_RUN_H

#include <stddef.h>

/* Its standard output and error in `text`. The exit status. */
int ctl_run(const char *arguments, char *text, size_t size);

#endif
