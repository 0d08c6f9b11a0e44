/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8_seal says about the scaling state of the group, for seal.c. Any thread.
 */
#ifndef F8_CLIENT_STATE_H
#define F8_CLIENT_STATE_H

#include "client/group.h"

/* F8_EINVAL unless the options that concern the state go together; F8_EVERSION. */
int state_check(const struct f8_group *group, const struct f8_seal_options *options);

/*
 * The descriptor that goes with the seal: for F8_STATE_IMPORT a memfd with the import, sealed so
 * that what the daemon checks cannot change after; else -1. The caller's to close.
 */
int state_import(const struct f8_seal_options *options, int *ret_memfd);

#endif
