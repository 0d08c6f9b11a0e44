/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ranks get to read: every byte of the arena and every scale, against the specification's
 * kernels over the whole weight. Uneven and empty shards, all flavours and formats, own places and
 * slots, steps with values that change, and the counters that operators see. On the host, and on
 * devices, where each has an arena of its own and things come in any order that is allowed.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/kernel_support.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define RANKS       2
#define NUM_WEIGHTS 8
#define NUM_BUCKETS 3
#define REGION      ((uint64_t)1 << 20)
#define MAX_BYTES   (64 * 1024)

/* Rows are uneven; one weight has fewer rows than ranks, one none at all. */
static const struct plan {
    const char *name;
    uint64_t rows, cols;
    uint32_t dtype, flavour, format;
    bool power_of_two;
    uint32_t bucket;
} plans[NUM_WEIGHTS] = {
    {"qkv", 101, 64, F8_PROTO_BF16, F8_PROTO_DYNAMIC, F8_PROTO_E4M3FN, false, 0},
    {"out", 64, 33, F8_PROTO_F32, F8_PROTO_DYNAMIC, F8_PROTO_E5M2, true, 0},
    {"norm", 7, 1, F8_PROTO_F32, F8_PROTO_RAW_BF16, 0, false, 0},
    {"up", 13, 1000, F8_PROTO_F16, F8_PROTO_DYNAMIC, F8_PROTO_E4M3FN, false, 1},
    {"fixed", 31, 17, F8_PROTO_F32, F8_PROTO_STATIC, F8_PROTO_E4M3FN, false, 1},
    {"bias", 1, 50, F8_PROTO_BF16, F8_PROTO_RAW, 0, false, 1},
    {"empty", 0, 50, F8_PROTO_BF16, F8_PROTO_DYNAMIC, F8_PROTO_E4M3FN, false, 1},
    {"head", 3, 500, F8_PROTO_BF16, F8_PROTO_DYNAMIC, F8_PROTO_E5M2, false, 2},
};

#define STATIC_SCALE 3.5f

static struct rooms rooms;
static struct client ranks[RANKS];
static uint8_t *regions[RANKS];
static uint8_t *arenas[RANKS]; /* as each rank maps it */
static uint64_t arena_size;
static uint64_t offsets[NUM_WEIGHTS];         /* of the shards, in every rank's region */
static uint8_t whole[NUM_WEIGHTS][MAX_BYTES]; /* each weight's elements, rows in order */
static float precomputed[NUM_WEIGHTS];
static bool has_precomputed;

static void set_up_on(uint32_t num_devices, uint64_t seed)
{
    rooms_open_on(&rooms, num_devices);
    if (num_devices > 0)
        device_backend_shuffle(rooms.cuda, seed);
    has_precomputed = false;
    memset(arenas, 0, sizeof(arenas));
    uint64_t offset = 0;
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        offsets[w] = offset;
        offset += f8_proto_align(plans[w].rows * plans[w].cols * 4);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        client_open(&ranks[r], &rooms, 100 + r);
        int fd = client_enter(&ranks[r], "train", "dp", r, RANKS, REGION);
        regions[r] = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(regions[r], MAP_FAILED);
        (void)close(fd);
    }
}

static void set_up_on_host(void)
{
    set_up_on(0, 0);
}

static void set_up_on_one_device(void)
{
    set_up_on(1, 0);
}

static void set_up_on_two_devices(void)
{
    set_up_on(2, 0);
}

static void set_up_shuffled(void)
{
    set_up_on(2, 42);
}

static void tear_down(void)
{
    for (int r = 0; r < RANKS; r++) {
        client_close(&ranks[r], false);
        (void)munmap(regions[r], REGION);
        if (arenas[r])
            (void)munmap(arenas[r], arena_size);
    }
    rooms_close(&rooms);
}

static uint64_t element_size(int w)
{
    return f8_proto_dtype_size(plans[w].dtype);
}

/* New values in the whole weights and in the shards of both ranks. */
static void fill(uint64_t seed)
{
    struct rng rng = {.state = seed};
    rooms_synchronise(&rooms);
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        uint64_t count = plans[w].rows * plans[w].cols, row = plans[w].cols * element_size(w);
        ck_assert_uint_le(count * element_size(w), MAX_BYTES);
        for (uint64_t i = 0; i < count; i++)
            set_element((enum f8k_dtype)plans[w].dtype, whole[w], i,
                random_element(&rng, (enum f8k_dtype)plans[w].dtype));
        for (uint32_t r = 0; r < RANKS; r++)
            memcpy(regions[r] + offsets[w],
                whole[w] + f8_proto_shard_begin(plans[w].rows, RANKS, r) * row,
                f8_proto_shard_rows(plans[w].rows, RANKS, r) * row);
    }
}

static void register_all(struct client *client, const bool *shared)
{
    uint64_t shapes[NUM_WEIGHTS][2];
    F8__Weight weights[NUM_WEIGHTS];
    F8__Bucket buckets[NUM_BUCKETS];
    uint32_t first = 0;
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        float scale = STATIC_SCALE;
        shapes[w][0] = plans[w].rows;
        shapes[w][1] = plans[w].cols;
        weights[w] = make_weight(plans[w].name, plans[w].flavour, shapes[w], 2, 1, offsets[w]);
        weights[w].dtype = plans[w].dtype;
        weights[w].format = plans[w].format;
        weights[w].power_of_two = plans[w].power_of_two;
        memcpy(&weights[w].static_scale, &scale, sizeof(scale));
    }
    static const char *const names[] = {"attention", "mlp", "head"};
    for (uint32_t b = 0; b < NUM_BUCKETS; b++) {
        uint32_t count = 0;
        while (first + count < NUM_WEIGHTS && plans[first + count].bucket == b)
            count++;
        buckets[b] = make_bucket(names[b], first, count, shared[b]);
        first += count;
    }
    uint64_t id = ask_register(client, weights, NUM_WEIGHTS, buckets, NUM_BUCKETS, false);
    ck_assert_int_eq(client_status(client, id), F8_OK);
}

static void seal(const bool *shared, uint32_t slots, bool poison)
{
    uint64_t ids[RANKS];
    for (int r = 0; r < RANKS; r++)
        register_all(&ranks[r], shared);
    for (int r = 0; r < RANKS; r++)
        ids[r] = poison ? ask_seal_poisoned(&ranks[r], slots) : ask_seal(&ranks[r], slots);
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(client_status(&ranks[r], ids[r]), F8_OK);
    arena_size = client_await(&ranks[1], ids[1])->seal->arena_size;
    for (int r = 0; r < RANKS; r++) {
        arenas[r] = mmap(NULL, arena_size, PROT_READ, MAP_SHARED, ranks[r].arena, 0);
        ck_assert_ptr_ne(arenas[r], MAP_FAILED);
    }
}

/* ---- What should be there ---- */

static uint32_t amax_of(int w)
{
    return f8k_variant(0)->amax(
        (enum f8k_dtype)plans[w].dtype, whole[w], plans[w].rows * plans[w].cols);
}

static float scale_of(int w, enum f8k_scale_path path)
{
    return f8k_scale(amax_of(w), (enum f8k_dtype)plans[w].dtype, (enum f8k_format)plans[w].format,
        path, plans[w].power_of_two);
}

/* The scale that the next gather takes; 0 for weights that have none. */
static float wanted_scale(int w)
{
    if (plans[w].flavour == F8_PROTO_STATIC)
        return STATIC_SCALE;
    if (plans[w].flavour != F8_PROTO_DYNAMIC)
        return 0;
    return has_precomputed ? precomputed[w] : scale_of(w, F8K_SCALE_DIRECT);
}

/* The gathered weight without padding. */
static uint64_t wanted_bytes(int w, uint8_t *bytes)
{
    uint64_t count = plans[w].rows * plans[w].cols;
    struct f8k_counts counts = {0};
    if (plans[w].flavour == F8_PROTO_RAW) {
        memcpy(bytes, whole[w], count * element_size(w));
        return count * element_size(w);
    }
    if (plans[w].flavour == F8_PROTO_RAW_BF16) {
        f8k_variant(0)->to_bf16((const float *)(const void *)whole[w], (void *)bytes, count);
        return count * 2;
    }
    f8k_variant(0)->cast(&(struct f8k_cast){.src = whole[w],
                             .dst = bytes,
                             .count = count,
                             .scale = wanted_scale(w),
                             .dtype = (enum f8k_dtype)plans[w].dtype,
                             .format = (enum f8k_format)plans[w].format},
        &counts);
    return count;
}

static bool same_bits(const void *a, float b)
{
    return memcmp(a, &b, sizeof(b)) == 0;
}

/* One weight at its place: rows in order since chunks are rank-major, then zeros to the end. */
static void check_weight(int w, const uint8_t *at, uint64_t span)
{
    static uint8_t wanted[2 * MAX_BYTES];
    uint64_t size = wanted_bytes(w, wanted);
    ck_assert_msg(memcmp(at, wanted, size) == 0, "%s has other bytes", plans[w].name);
    uint64_t wire =
        f8_proto_wire_size(f8_proto_wire_of(plans[w].flavour, plans[w].dtype, plans[w].format));
    uint64_t padded = f8_proto_chunk_rows(plans[w].rows, RANKS) * RANKS * plans[w].cols * wire;
    ck_assert_uint_le(padded, span);
    for (uint64_t i = size; i < padded; i++)
        ck_assert_msg(at[i] == 0, "%s has no zero in its padding", plans[w].name);
}

static void check_bucket(const uint8_t *arena, uint32_t bucket, uint64_t offset)
{
    const uint8_t *at = arena + offset;
    uint32_t count = 0;
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        if (plans[w].bucket != bucket)
            continue;
        uint64_t span = f8_proto_weight_span(plans[w].rows, plans[w].cols, RANKS,
            f8_proto_wire_size(
                f8_proto_wire_of(plans[w].flavour, plans[w].dtype, plans[w].format)));
        check_weight(w, at, span);
        at += span;
        count++;
    }
    for (int w = 0; w < NUM_WEIGHTS; w++)
        if (plans[w].bucket == bucket) {
            ck_assert_msg(same_bits(at, wanted_scale(w)), "%s has another scale", plans[w].name);
            at += sizeof(float);
        }
    ck_assert_uint_le((uint64_t)(at - arena) + (1024 - count) * sizeof(float), arena_size);
}

/* ---- Steps ---- */

static void all_ok(const uint64_t *ids)
{
    for (int r = 0; r < RANKS; r++) {
        const F8__Reply *reply = client_await(&ranks[r], ids[r]);
        ck_assert_msg(reply->status == F8_OK, "status %d (%s)", reply->status, reply->text);
    }
}

static void changed(void)
{
    uint64_t ids[RANKS];
    for (int r = 0; r < RANKS; r++)
        ids[r] = ask_changed(&ranks[r], 0, NUM_WEIGHTS);
    all_ok(ids);
}

static void precompute(void)
{
    uint64_t ids[RANKS];
    for (int r = 0; r < RANKS; r++)
        ids[r] = ask_precompute(&ranks[r]);
    all_ok(ids);
    has_precomputed = true;
    for (int w = 0; w < NUM_WEIGHTS; w++)
        precomputed[w] = scale_of(w, F8K_SCALE_PRECOMPUTE);
}

static void gather(uint32_t bucket, uint32_t early_ranks)
{
    uint64_t ids[RANKS];
    for (uint32_t r = 0; r < early_ranks; r++)
        ck_assert_int_eq(client_status(&ranks[r], ask_pre_gather(&ranks[r], bucket)), F8_OK);
    for (int r = 0; r < RANKS; r++)
        ids[r] = ask_gather(&ranks[r], bucket);
    all_ok(ids);
    uint64_t offset = client_await(&ranks[0], ids[0])->gather->offset;
    ck_assert_uint_eq(client_await(&ranks[1], ids[1])->gather->offset, offset);
    rooms_synchronise(&rooms);
    for (int r = 0; r < RANKS; r++)
        check_bucket(arenas[r], bucket, offset);
    for (int r = 0; r < RANKS; r++)
        client_refused(&ranks[r], ask_gather(&ranks[r], bucket), F8_EBUSY, "still holds bucket");
}

static void release(uint32_t bucket)
{
    for (int r = 0; r < RANKS; r++)
        send_release(&ranks[r], bucket);
}

static void gather_each(uint32_t early_ranks)
{
    for (uint32_t b = 0; b < NUM_BUCKETS; b++) {
        gather(b, early_ranks);
        release(b);
    }
}

/* Steps with and without a precompute, and with 0, 1 or both ranks early. */
static void run_steps(void)
{
    uint32_t early_ranks = 0;
    fill(1);
    gather_each(early_ranks);
    for (uint64_t step = 2; step < 8; step++) {
        fill(step);
        changed();
        if (step > 4)
            precompute();
        early_ranks = (early_ranks + 1) % (RANKS + 1);
        gather_each(early_ranks);
    }
    fill(99); /* and once with scales of older values */
    changed();
    gather_each(1);
}

START_TEST(own_places)
{
    static const bool none[NUM_BUCKETS] = {false};
    seal(none, 0, false);
    run_steps();
    for (uint32_t b = 0; b < NUM_BUCKETS; b++)
        gather(b, 2); /* all held at once */
    for (uint32_t b = 0; b < NUM_BUCKETS; b++)
        release(b);
}
END_TEST

START_TEST(one_slot)
{
    static const bool all[NUM_BUCKETS] = {true, true, true};
    seal(all, 1, false);
    run_steps();
    gather(0, 0);
    client_refused(&ranks[0], ask_gather(&ranks[0], 1), F8_EBUSY, "uses all 1 shared slots");
    release(0);
}
END_TEST

START_TEST(slots_and_own_places_poisoned)
{
    static const bool some[NUM_BUCKETS] = {true, false, true};
    seal(some, 2, true);
    run_steps();
    rooms_settle(&rooms);
    for (uint64_t i = 0; i < arena_size; i++)
        for (int r = 0; r < RANKS; r++)
            ck_assert_msg(arenas[r][i] == 0xff, "a free place is not poisoned at %d", (int)i);
}
END_TEST

/* Ranks that are at different values of a weight do not gather it. */
START_TEST(versions_must_agree)
{
    static const bool none[NUM_BUCKETS] = {false};
    fill(1);
    seal(none, 0, false);
    changed();
    ck_assert_int_eq(client_status(&ranks[1], ask_changed(&ranks[1], 1, 1)), F8_OK);
    gather(1, 0);
    uint64_t id = ask_gather(&ranks[0], 0);
    client_refused(&ranks[1], ask_gather(&ranks[1], 0), F8_EMISMATCH,
        "weight out: rank 1 (pid 101) is at version 2 where rank 0 (pid 100) is at version 1");
    client_refused(&ranks[0], id, F8_EMISMATCH, "weight out");
}
END_TEST

/* Shards belong to the daemon while a request on them is open. */
static uint64_t stale_gathers(void)
{
    const struct group *group = registry_jobs(rooms.context.registry)->groups;
    uint64_t stale = 0;
    for (uint32_t w = 0; w < group->list->num_weights; w++)
        stale += group->scalings[w].stale;
    return stale;
}

/* What changes no values raises nothing; what changes them without a precompute is counted. */
START_TEST(only_changed_values_are_stale)
{
    static const bool none[NUM_BUCKETS] = {false};
    fill(1);
    seal(none, 0, false);
    changed();
    precompute();
    gather_each(0); /* evaluation, or accumulation: the same values again and again */
    gather_each(1);
    precompute(); /* all weights are frozen: nothing has changed since */
    gather_each(0);
    ck_assert_uint_eq(stale_gathers(), 0);
    for (int r = 0; r < RANKS; r++) /* the others are frozen */
        ck_assert_int_eq(client_status(&ranks[r], ask_changed(&ranks[r], 0, 1)), F8_OK);
    precompute();
    gather_each(0);
    ck_assert_uint_eq(stale_gathers(), 0);
    changed();
    gather_each(0);
    ck_assert_uint_gt(stale_gathers(), 0);
}
END_TEST

START_TEST(open_requests_keep_shards)
{
    static const bool none[NUM_BUCKETS] = {false};
    fill(1);
    seal(none, 0, false);
    uint64_t ids[RANKS] = {ask_gather(&ranks[0], 0), 0};
    client_refused(&ranks[0], ask_changed(&ranks[0], 0, 1), F8_EBUSY,
        "weight qkv is read by the open gather of bucket attention");
    client_refused(&ranks[0], ask_move(&ranks[0], 1, 1, 0), F8_EBUSY, "weight out is read");
    ck_assert_int_eq(client_status(&ranks[0], ask_changed(&ranks[0], 3, 2)), F8_OK);
    ids[1] = ask_gather(&ranks[1], 0);
    all_ok(ids);
    uint64_t moved = REGION - f8_proto_align(MAX_BYTES);
    rooms_synchronise(&rooms);
    memcpy(regions[0] + moved, regions[0] + offsets[0], 51 * 64 * 2);
    ck_assert_int_eq(client_status(&ranks[0], ask_move(&ranks[0], 0, 1, moved)), F8_OK);
    client_refused(&ranks[0], ask_move(&ranks[0], 0, 1, REGION - 2), F8_EREGION, "does not fit");
    memset(regions[0] + offsets[0], 0x7f, 64);
    release(0);
    gather(0, 0);
}
END_TEST

static void add_case(Suite *suite, const char *name, void (*set_up)(void))
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, own_places);
    tcase_add_test(tcase, one_slot);
    tcase_add_test(tcase, slots_and_own_places_poisoned);
    tcase_add_test(tcase, versions_must_agree);
    tcase_add_test(tcase, open_requests_keep_shards);
    tcase_add_test(tcase, only_changed_values_are_stale);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("session_run");
    add_case(suite, "on the host", set_up_on_host);
    add_case(suite, "on one device", set_up_on_one_device);
    add_case(suite, "on two devices", set_up_on_two_devices);
    add_case(suite, "on two devices, shuffled", set_up_shuffled);
    return run_cases(suite);
}
