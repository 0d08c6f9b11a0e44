/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The little that a kernel test needs of a CUDA device: memory, copies, one stream. Over the CUDA
 * runtime API, so the same test runs on a GPU and on the simulator, whichever library is linked.
 * One thread. All but device_open end the program, with the runtime's words, where they fail.
 */
#ifndef F8_TESTS_CUDA_DEVICE_H
#define F8_TESTS_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

/* Takes the first device and makes a non-blocking stream; false, having said why on standard
 * output, where there is none. */
bool device_open(void);
void device_close(void);

/* A cudaStream_t. */
void *device_stream(void);

void *device_alloc(size_t bytes);
void device_free(void *device);

/* On the stream, and done when they return. */
void device_upload(void *device, const void *host, size_t bytes);
void device_download(void *host, const void *device, size_t bytes);
void device_wait(void);

#endif
