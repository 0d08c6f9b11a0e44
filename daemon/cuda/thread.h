/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between queue.c and thread.c: what the device thread needs of the queue, and its body. Nobody
 * else includes this.
 */
#ifndef F8_DAEMON_CUDA_THREAD_H
#define F8_DAEMON_CUDA_THREAD_H

#include "daemon/cuda/cuda_private.h"

/* The thread's body, once the devices are open: until CUDA_QUIT. */
void cuda_thread_serve(struct cuda *cuda);

/* The next command, or NULL. */
struct cuda_command *cuda_queue_pop(struct cuda *cuda);

/* Until there is a command, or for so many milliseconds; CUDA_NO_TICK: for ever. */
void cuda_queue_wait(struct cuda *cuda, uint64_t ms);

#endif
