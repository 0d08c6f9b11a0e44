/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with states to be stored, for the tests of daemon/state*: made anew for each test. */
#ifndef F8_STATE_FIXTURE_H
#define F8_STATE_FIXTURE_H

#include "daemon/state_form.h"

/* What a weight is, before weights_add: float32, e4m3fn, delayed, a history of 16. */
struct weight state_fixture_weight(void);

/* An empty list to which state_fixture_add adds. */
struct weight_list *state_fixture_list(void);
void state_fixture_add(struct weight_list *list, const char *name, const struct weight *weight);

/* layers.0.wq and layers.0.wk are delayed and differ in all they can; norm and wv are not. */
struct weight_list *state_fixture_model(void);

/* Scalings of a list in which every field has a value of its own that follows from the seed. */
struct scaling *state_fixture_scalings(const struct weight_list *list, uint32_t seed);

/* Whether all that a state keeps is the same, bit for bit. */
bool state_fixture_same(
    const struct weight_list *list, const struct scaling *a, const struct scaling *b);

/* A form of the model; uid 1000, job "../job", group "dp/../x", token "secret". */
struct state_form state_fixture_form(
    const struct weight_list *list, const struct scaling *scalings, uint64_t syncs);

/* Calls for each file of a directory, NULL: for none; how many there are. Removes them all. */
int state_fixture_files(const char *directory, void (*call)(const char *path));
void state_fixture_remove_files(const char *directory);

#endif
