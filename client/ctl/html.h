/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in HTML, XHTML and SVG. Names come from trainers: nothing of them may be read as markup, nor
 * break the document. Called by svg.c and the report.
 */
#ifndef F8CTL_HTML_H
#define F8CTL_HTML_H

#include <stdio.h>

/*
 * Writes a text for an element or for an attribute in quotes: markup escaped, and U+FFFD for each
 * byte that is no UTF-8, and for characters that a document may not have.
 */
void html_text(FILE *to, const char *text);

#endif
