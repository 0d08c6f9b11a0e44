/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What syncs made of a delayed weight, drawn with characters: braille where the locale is UTF-8,
 * else ASCII. Called by history.c.
 */
#ifndef F8CTL_PLOT_H
#define F8CTL_PLOT_H

#include "client/ctl/series.h"

/* Both curves on standard output, one below the other, as wide as the terminal; count > 0. */
void plot_print(const struct series *series);

#endif
