/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What syncs made of a delayed weight, as an SVG: for a file of its own, or within a page. Called
 * by history.c and the report.
 */
#ifndef F8CTL_SVG_H
#define F8CTL_SVG_H

#include <stdio.h>

#include "client/ctl/series.h"

/* Colours and lines of the elements that are written here, light and dark; for a page's <style>. */
extern const char svg_style[];

/* A whole file of `count` plots, one below the other: begun, each added in order, and ended. */
void svg_begin(FILE *to, size_t count);
void svg_add(FILE *to, size_t index, const struct series *series, const char *heading);
void svg_end(FILE *to);

/* An <svg> for a page that has svg_style, narrow enough for a telephone. */
void svg_inline(FILE *to, const struct series *series, const char *heading);

#endif
