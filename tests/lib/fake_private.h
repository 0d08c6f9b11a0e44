/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of the fake hosts: see fake_hosts.h. fake_world.c has the worlds, fake_fabric.c
 * the fabrics, the backend and the events. One thread.
 */
#ifndef F8_TESTS_FAKE_PRIVATE_H
#define F8_TESTS_FAKE_PRIVATE_H

#include "tests/lib/fake_hosts.h"

/* Which host of the process calls. */
extern uint32_t fake_host;

/* fake_world.c */
void fake_begin_worlds(void);
uint32_t fake_world_events(struct fake_event *events, uint32_t count);
void fake_world_up(uint32_t world);
void fake_world_down(uint32_t world);
void fake_partition_worlds(uint32_t host, uint32_t (*random)(uint32_t count));

#endif
