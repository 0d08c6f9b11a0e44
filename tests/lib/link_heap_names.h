/* SPDX-License-Identifier: Apache-2.0 */
/* Read before a source of the daemon (-include), so that its memory is that of link_world.h. */
#ifndef F8_TESTS_LINK_HEAP_NAMES_H
#define F8_TESTS_LINK_HEAP_NAMES_H

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void *link_heap_calloc(size_t count, size_t size);
void *link_heap_realloc(void *memory, size_t size);
char *link_heap_strdup(const char *text);
void link_heap_free(void *memory);

#undef strdup
#define malloc(size)          link_heap_calloc(1, size)
#define calloc(count, size)   link_heap_calloc(count, size)
#define realloc(memory, size) link_heap_realloc(memory, size)
#define strdup(text)          link_heap_strdup(text)
#define free                  link_heap_free /* a member of backend_ops too, which is not read here */

#endif
