/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The question that stands before all that destroys. Called by commands that take --yes, before
 * they ask the daemon for anything.
 */
#ifndef F8CTL_CONFIRM_H
#define F8CTL_CONFIRM_H

#include "client/ctl/ctl.h"

/*
 * CTL_OK if it may be done: --yes was given, or "yes" is typed on a terminal, to a question made of
 * the sentence, such as "drops all that is kept of job a". Otherwise nothing may be done and the
 * command ends with what this returns: CTL_USAGE where nobody can be asked, CTL_REFUSED after
 * another answer; standard error has said why.
 */
int ctl_confirm(const struct ctl *ctl, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
