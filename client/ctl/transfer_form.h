/* SPDX-License-Identifier: Apache-2.0 */
/* The form in which export and import have a state in a file, for transfer.c. */
#ifndef F8CTL_TRANSFER_FORM_H
#define F8CTL_TRANSFER_FORM_H

#include <stdint.h>

/*
 * Replaces *fd, whose bytes are a state in its binary form, by a memfd that has it as JSON. The old
 * one is closed; on failure it stays.
 */
int transfer_to_json(int *fd);

/*
 * If what the memfd has looks like JSON, replaces it by one with the binary form, as above. `file`
 * names it in refusals.
 */
int transfer_from_json(int *fd, const char *file);

/*
 * How many syncs the state has seen that the memfd has in its binary form; `file` names it. What
 * state_doc_read() refuses, F8_EIO.
 */
int transfer_syncs(int fd, const char *file, uint64_t *ret_syncs);

#endif
