/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misuse: packets that the library would never send. What can be understood is answered and the
 * connection lives; what cannot ends that connection (F8_ECONN here) and nothing else.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol.h"
#include "system/misuse.h"

static void note(struct scene *scene, struct outcome outcome)
{
    ck_assert_uint_lt(scene->num_outcomes, SCENE_OUTCOMES);
    scene->outcomes[scene->num_outcomes++] = outcome;
}

static struct outcome ping(struct raw_client *raw)
{
    F8__Ping body = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &body;
    return raw_try(raw, &request, NULL, 0);
}

/* The connection lives: it is still answered. */
static void must_live(struct raw_client *raw)
{
    ck_assert_int_eq(ping(raw).status, F8_OK);
}

/* The reply to bytes, as an outcome. */
static struct outcome reply_to(
    struct raw_client *raw, const void *bytes, size_t size, const int *fds, size_t num_fds)
{
    struct outcome outcome = {.status = F8_ECONN};
    F8__Reply *reply = NULL;
    if (raw_send_bytes(raw, bytes, size, fds, num_fds))
        reply = raw_receive(raw, NULL);
    if (!reply)
        return outcome;
    outcome.status = reply->status;
    (void)snprintf(outcome.text, sizeof(outcome.text), "%s", reply->text);
    raw_free(reply);
    return outcome;
}

static void hello_with(struct scene *scene, uint32_t major, const char *job)
{
    struct raw_client raw;
    F8__Hello hello = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    hello.major = major;
    hello.library_version = (char *)(uintptr_t) "9.9.9";
    hello.job = (char *)(uintptr_t)job;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    raw_open(&raw, &scene->daemon);
    note(scene, raw_try(&raw, &request, NULL, 0));
    raw_close(&raw);
}

static void other_major(struct scene *scene)
{
    hello_with(scene, 2, "raw");
}

static void no_job(struct scene *scene)
{
    hello_with(scene, F8_PROTO_MAJOR, "");
}

static void long_job(struct scene *scene)
{
    char name[300];
    memset(name, 'j', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    hello_with(scene, F8_PROTO_MAJOR, name);
}

static void unprintable_job(struct scene *scene)
{
    hello_with(scene, F8_PROTO_MAJOR, "train\x1b]0;owned\a");
}

static void request_before_hello(struct scene *scene)
{
    struct raw_client raw;
    raw_open(&raw, &scene->daemon);
    note(scene, ping(&raw));
    raw_close(&raw);
}

static void hello_twice(struct scene *scene)
{
    struct raw_client raw;
    F8__Hello hello = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.job = (char *)(uintptr_t) "another";
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    raw_greet(&raw, &scene->daemon, "raw");
    note(scene, raw_try(&raw, &request, NULL, 0));
    must_live(&raw);
    raw_close(&raw);
}

/* Sends these bytes after Hello and expects an answer, on a connection that lives. */
static void answered(struct scene *scene, const void *bytes, size_t size)
{
    struct raw_client raw;
    raw_greet(&raw, &scene->daemon, "raw");
    note(scene, reply_to(&raw, bytes, size, NULL, 0));
    must_live(&raw);
    raw_close(&raw);
}

static void unknown_kind(struct scene *scene)
{
    /* id 7; field 99, a message of no bytes */
    static const uint8_t packet[] = {0x08, 7, 0x9A, 0x06, 0};
    answered(scene, packet, sizeof(packet));
}

static void no_kind(struct scene *scene)
{
    static const uint8_t packet[] = {0x08, 7};
    answered(scene, packet, sizeof(packet));
}

static void no_id(struct scene *scene)
{
    /* Ping, a message of no bytes */
    static const uint8_t packet[] = {0x1A, 0};
    answered(scene, packet, sizeof(packet));
}

static void unknown_fields(struct scene *scene)
{
    /* id 7; Ping with field 5, a varint; then field 98 of the request, a varint */
    static const uint8_t packet[] = {0x08, 7, 0x1A, 2, 0x28, 42, 0x90, 0x06, 1};
    answered(scene, packet, sizeof(packet));
}

static void trainer_inspects(struct scene *scene)
{
    /* id 7; Inspect, a message of no bytes */
    static const uint8_t packet[] = {0x08, 7, 0x82, 0x01, 0};
    answered(scene, packet, sizeof(packet));
}

static void operator_trains(struct scene *scene)
{
    struct raw_client raw;
    F8__Join join = F8__JOIN__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_JOIN;
    request.join = &join;
    raw_greet(&raw, &scene->daemon, NULL);
    note(scene, raw_try(&raw, &request, NULL, 0));
    raw_close(&raw);
}

/* Sends these bytes, before and after Hello; the daemon must end the connection. */
static void ended(
    struct scene *scene, const void *bytes, size_t size, const int *fds, size_t num_fds)
{
    struct raw_client raw;
    raw_open(&raw, &scene->daemon);
    note(scene, reply_to(&raw, bytes, size, fds, num_fds));
    raw_close(&raw);
    raw_greet(&raw, &scene->daemon, "raw");
    note(scene, reply_to(&raw, bytes, size, fds, num_fds));
    raw_close(&raw);
}

static void garbage(struct scene *scene)
{
    static const uint8_t packet[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    ended(scene, packet, sizeof(packet), NULL, 0);
}

static void truncated(struct scene *scene)
{
    /* id 7; Ping of five bytes, of which one is there */
    static const uint8_t packet[] = {0x08, 7, 0x1A, 5, 0x28};
    ended(scene, packet, sizeof(packet), NULL, 0);
}

static void oversize(struct scene *scene)
{
    static uint8_t packet[F8_PROTO_MAX_PACKET + 1];
    ended(scene, packet, sizeof(packet), NULL, 0);
}

static void no_bytes(struct scene *scene)
{
    ended(scene, "", 0, NULL, 0);
}

static void no_bytes_but_descriptors(struct scene *scene)
{
    const int fds[] = {raw_memfd(1), raw_memfd(1)};
    ended(scene, "", 0, fds, 2);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void hundreds_of_descriptors(struct scene *scene)
{
    int fds[250];
    static const uint8_t packet[] = {0x08, 7, 0x1A, 0};
    for (size_t i = 0; i < 250; i++)
        fds[i] = i == 0 ? raw_memfd(1) : fds[0];
    ended(scene, packet, sizeof(packet), fds, 250);
    ended(scene, packet, sizeof(packet), fds, F8_PROTO_MAX_FDS + 1);
    (void)close(fds[0]);
}

static void descriptor_on_a_ping(struct scene *scene)
{
    struct raw_client raw;
    F8__Ping body = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    const int fds[] = {raw_memfd(1), raw_memfd(1)};
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &body;
    raw_greet(&raw, &scene->daemon, "raw");
    note(scene, raw_try(&raw, &request, fds, 2));
    raw_close(&raw);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* ---- a group that is sealed, asked for what is not there ---- */

static void gather_as(struct scene *scene, uint64_t generation, uint32_t bucket, bool own_group)
{
    struct raw_client raw;
    F8__Gather gather = F8__GATHER__INIT;
    F8__Request request = F8__REQUEST__INIT;
    (void)close(raw_sealed(&raw, &scene->daemon, &gather.group));
    gather.group += own_group ? 0 : 1;
    gather.generation = generation;
    gather.bucket = bucket;
    request.body_case = F8__REQUEST__BODY_GATHER;
    request.gather = &gather;
    note(scene, raw_try(&raw, &request, NULL, 0));
    must_live(&raw);
    raw_close(&raw);
}

static void other_generation(struct scene *scene)
{
    gather_as(scene, 7, 0, true);
}

static void other_group(struct scene *scene)
{
    gather_as(scene, 1, 0, false);
}

static void other_bucket(struct scene *scene)
{
    gather_as(scene, 1, 9, true);
}

static void change_of_others(struct scene *scene)
{
    struct raw_client raw;
    F8__Changed changed = F8__CHANGED__INIT;
    F8__Request request = F8__REQUEST__INIT;
    (void)close(raw_sealed(&raw, &scene->daemon, &changed.group));
    changed.generation = 1;
    changed.first = 1;
    changed.count = UINT32_MAX;
    request.body_case = F8__REQUEST__BODY_CHANGED;
    request.changed = &changed;
    note(scene, raw_try(&raw, &request, NULL, 0));
    raw_close(&raw);
}

static void release_of_nothing(struct scene *scene)
{
    struct raw_client raw;
    F8__Release release = F8__RELEASE__INIT;
    F8__Request request = F8__REQUEST__INIT;
    (void)close(raw_sealed(&raw, &scene->daemon, &release.group));
    request.body_case = F8__REQUEST__BODY_RELEASE;
    request.release = &release;
    for (uint32_t i = 0; i < 4; i++) {
        release.generation = i % 2;
        release.bucket = i;
        ck_assert(raw_send(&raw, &request, NULL, 0));
    }
    note(scene, ping(&raw)); /* the next reply is this one's: a release has none */
    raw_close(&raw);
}

static void seal_while_registering(struct scene *scene)
{
    struct raw_client raw;
    F8__Join join = F8__JOIN__INIT;
    F8__Register part = F8__REGISTER__INIT;
    F8__Seal seal = F8__SEAL__INIT;
    F8__Request request = F8__REQUEST__INIT;
    raw_greet(&raw, &scene->daemon, "raw");
    join.group = (char *)(uintptr_t) "dp";
    join.world_size = 1;
    request.body_case = F8__REQUEST__BODY_JOIN;
    request.join = &join;
    F8__Reply *reply = raw_ask(&raw, &request, NULL, 0, NULL);
    ck_assert(reply && reply->status == F8_OK);
    part.group = seal.group = reply->join->group;
    raw_free(reply);
    part.more = true;
    request.body_case = F8__REQUEST__BODY_REGISTER;
    request.register_ = &part;
    ck_assert_int_eq(raw_try(&raw, &request, NULL, 0).status, F8_OK);
    seal.generation = 1;
    request.body_case = F8__REQUEST__BODY_SEAL;
    request.seal = &seal;
    note(scene, raw_try(&raw, &request, NULL, 0));
    raw_close(&raw);
}

static const struct misuse rows[] = {
    {"other major version", DAEMON_ONLY, other_major, F8_EVERSION,
        "the client (library 9.9.9) speaks protocol 2.0, this daemon (f8gatherd " F8_VERSION
        ") speaks 1.0: install versions that go together",
        {0}},
    {"job without a name", DAEMON_ONLY, no_job, F8_EINVAL, "the name of the job is empty", {0}},
    {"job with a long name", DAEMON_ONLY, long_job, F8_EINVAL,
        "the name of the job has 299 bytes, the limit is 255", {0}},
    {"job with control characters", DAEMON_ONLY, unprintable_job, F8_EINVAL,
        "the name of the job has the control character U+001B at byte 5", {0}},
    {"request before Hello", DAEMON_ONLY, request_before_hello, F8_EORDER,
        "the first request of a connection must be Hello", {0}},
    {"Hello twice", DAEMON_ONLY, hello_twice, F8_EORDER, "Hello comes once, as the first request",
        {0}},
    {"unknown kind", DAEMON_ONLY, unknown_kind, F8_EUNKNOWN,
        "request 7 is of a kind that f8gatherd " F8_VERSION " does not know", {0}},
    {"no kind", DAEMON_ONLY, no_kind, F8_EUNKNOWN, "request 7 is of a kind", {0}},
    {"no id", DAEMON_ONLY, no_id, F8_EPROTO, "a request has the id 0", {0}},
    {"unknown fields", DAEMON_ONLY, unknown_fields, F8_OK, "", {0}},
    {"trainer that inspects", DAEMON_ONLY, trainer_inspects, F8_EPERM,
        "a trainer's connection may not inspect", {0}},
    {"operator that trains", DAEMON_ONLY, operator_trains, F8_EPERM,
        "an operator's connection takes no part in training", {0}},
    {"garbage", DAEMON_ONLY, garbage, F8_ECONN, "", {0}},
    {"truncated packet", DAEMON_ONLY, truncated, F8_ECONN, "", {0}},
    {"packet too large", DAEMON_ONLY, oversize, F8_ECONN, "", {0}},
    {"packet of no bytes", DAEMON_ONLY, no_bytes, F8_ECONN, "", {0}},
    {"descriptors without bytes", DAEMON_ONLY, no_bytes_but_descriptors, F8_ECONN, "", {0}},
    {"hundreds of descriptors", DAEMON_ONLY, hundreds_of_descriptors, F8_ECONN, "", {0}},
    {"descriptors on a ping", DAEMON_ONLY, descriptor_on_a_ping, F8_OK, "", {0}},
    {"other generation", DAEMON_ONLY, other_generation, F8_ESTALE,
        "generation 7 of group dp has passed: rank 0 is in generation 1", {0}},
    {"other group", DAEMON_ONLY, other_group, F8_ENOENT, ": this client has not joined it", {0}},
    {"other bucket", DAEMON_ONLY, other_bucket, F8_ENOENT, "bucket 9: group dp has 1 buckets", {0}},
    {"change of others", DAEMON_ONLY, change_of_others, F8_ENOENT, "group dp has 1 weights", {0}},
    {"release of nothing", DAEMON_ONLY, release_of_nothing, F8_OK, "", {0}},
    {"seal in a registration", DAEMON_ONLY, seal_while_registering, F8_EORDER,
        "rank 0 asked for the seal in the middle of a registration", {0}},
};

const struct misuse_table misuse_packets = MISUSE_TABLE("packets", rows);
