/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two sources of models (built-in shapes, files) put one together. Private to them.
 */
#ifndef F8BENCH_MODEL_BUILD_H
#define F8BENCH_MODEL_BUILD_H

#include "client/bench/model.h"

/* Sets the model's name; room for that many weights and as many buckets. */
int model_reserve(struct model *model, const char *name, uint32_t num_weights);

/*
 * Appends a weight, whose name is copied, to the last bucket if that is called `bucket`, else to
 * a new one. Within what was reserved.
 */
int model_append(struct model *model, const char *bucket, const struct model_weight *weight);

#endif
