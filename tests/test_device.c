/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of clients: references, and which event each open request waits for.
 */
#include "daemon/device.h"

#include <check.h>
#include <stdlib.h>

#include "status.h"
#include "tests/lib/suite.h"

#define BUCKETS  3
#define PLACES   5
#define CAPACITY 4

static struct ready_events events;

static void set_up(void)
{
    events = (struct ready_events){0};
    ck_assert_int_eq(ready_events_reset(&events, BUCKETS, PLACES, CAPACITY), F8_OK);
}

static void tear_down(void)
{
    ready_events_free(&events);
    ck_assert_ptr_null(events.buckets);
    ready_events_free(&events); /* as of a member that was never sealed */
}

START_TEST(events_of_buckets_are_taken_once)
{
    ready_events_put(&events, 0, 1);
    ready_events_put(&events, 2, 128);
    ck_assert_uint_eq(ready_events_take(&events, 0), 0); /* an index: one less */
    ck_assert_uint_eq(ready_events_take(&events, 0), BACKEND_NO_EVENT);
    ck_assert_uint_eq(ready_events_take(&events, 1), BACKEND_NO_EVENT);
    ck_assert_uint_eq(ready_events_take(&events, 2), 127);
}
END_TEST

START_TEST(no_event_keeps_the_one_before)
{
    ready_events_put(&events, 1, 5);
    ready_events_put(&events, 1, 0);
    ck_assert_uint_eq(ready_events_take(&events, 1), 4);
    ready_events_put(&events, 1, 5);
    ready_events_put(&events, 1, 6);
    ck_assert_uint_eq(ready_events_take(&events, 1), 5);
}
END_TEST

START_TEST(events_of_places_are_taken_once)
{
    ready_events_release(&events, 4, 3);
    ready_events_release(&events, 4, 2); /* the last counts */
    ready_events_release(&events, 0, 0);
    ck_assert_uint_eq(ready_events_reuse(&events, 4), 1);
    ck_assert_uint_eq(ready_events_reuse(&events, 4), BACKEND_NO_EVENT);
    ck_assert_uint_eq(ready_events_reuse(&events, 0), BACKEND_NO_EVENT);
    ck_assert_uint_eq(ready_events_take(&events, 2), BACKEND_NO_EVENT);
}
END_TEST

START_TEST(precomputes_are_a_queue)
{
    for (int round = 0; round < 3; round++) { /* so that the ring goes round */
        for (uint32_t i = 0; i <= CAPACITY; i++)
            ready_events_push(&events, i); /* the first has none */
        ready_events_take_back(&events);
        ready_events_push(&events, 99);
        ck_assert_uint_eq(ready_events_pop(&events), BACKEND_NO_EVENT);
        for (uint32_t i = 1; i < CAPACITY; i++)
            ck_assert_uint_eq(ready_events_pop(&events), i - 1);
        ck_assert_uint_eq(ready_events_pop(&events), 98);
        ck_assert_uint_eq(events.count, 0);
    }
}
END_TEST

START_TEST(a_reset_forgets)
{
    ready_events_put(&events, 0, 1);
    ready_events_push(&events, 1);
    ck_assert_int_eq(ready_events_reset(&events, 1, 2, 1), F8_OK);
    ck_assert_uint_eq(ready_events_take(&events, 0), BACKEND_NO_EVENT);
    ck_assert_uint_eq(events.count, 0);
    ready_events_push(&events, 7);
    ck_assert_uint_eq(ready_events_pop(&events), 6);
}
END_TEST

/* ---- references ---- */

static struct backend_client *detached;
static int detaches;

static void detach(struct backend *backend, struct backend_client *client)
{
    (void)backend;
    detached = client;
    detaches++;
}

static const struct backend_device_ops device_ops = {.detach = detach};
static const struct backend_ops ops = {.name = "test", .device = &device_ops};

START_TEST(the_last_reference_detaches)
{
    struct backend backend = {.ops = &ops};
    struct backend_client *client = (struct backend_client *)&backend; /* never looked into */
    struct backend_attach attach = {.client = client, .device = 3, .num_ready = 9};
    struct device *device = device_new(&backend, &attach);
    ck_assert_ptr_nonnull(device);
    ck_assert_int_eq(device->number, 3);
    ck_assert_uint_eq(device->num_ready, 9);
    ck_assert_ptr_eq(device_ref(device), device);
    device_unref(device);
    ck_assert_int_eq(detaches, 0);
    device_unref(device);
    ck_assert_int_eq(detaches, 1);
    ck_assert_ptr_eq(detached, client);
    device_unref(NULL);
    ck_assert_int_eq(detaches, 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("device");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, events_of_buckets_are_taken_once);
    tcase_add_test(tcase, no_event_keeps_the_one_before);
    tcase_add_test(tcase, events_of_places_are_taken_once);
    tcase_add_test(tcase, precomputes_are_a_queue);
    tcase_add_test(tcase, a_reset_forgets);
    tcase_add_test(tcase, the_last_reference_detaches);
    return run_suite("device", tcase);
}
