/* SPDX-License-Identifier: Apache-2.0 */
/* What f8ctl doctor --json has found, for tests that look for single findings. */
#ifndef F8_TESTS_FINDINGS_H
#define F8_TESTS_FINDINGS_H

/*
 * Takes the text of a run in place of that of the last one. Checks that it is one JSON object, and
 * that whatever is wrong has a remedy, and nothing else has one.
 */
void findings_take(const char *text);

/* The finding of a check must have this result, and have these parts in it; NULL: any. */
void found(const char *check, const char *result, const char *value, const char *remedy);

void findings_drop(void);

#endif
