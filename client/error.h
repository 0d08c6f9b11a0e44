/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the last call of this thread failed: one sentence in a thread-local buffer. Written by every
 * room of the client, read through f8_error_text() or error_text(). Any thread; allocates nothing.
 */
#ifndef F8_CLIENT_ERROR_H
#define F8_CLIENT_ERROR_H

/* Keeps the sentence for this thread and gives `status` back, so that callers can return it. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The sentence of this thread's last failure; "" before any. Valid until the next error_set. */
const char *error_text(void);

#endif
