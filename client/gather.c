/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One use of a bucket: pre-gather, gather, post-gather, its views, release. Any thread; a bucket's
 * state tells what each call may do, and the group's lock is never held over a wait or a send
 * (a release is posted under it: posting never blocks).
 */
#include "client/error.h"
#include "client/group.h"

/* F8_EBUSY unless the bucket is in a state that a new request may follow; lock held. */
static int check_free(const struct bucket *bucket, enum bucket_state also)
{
    if (bucket->state == BUCKET_IDLE || bucket->state == also)
        return F8_OK;
    if (bucket->state == BUCKET_HELD)
        return error_set(F8_EBUSY,
            "bucket %s is held by this rank: call f8_release before it is gathered again",
            bucket->name);
    return error_set(F8_EBUSY, "bucket %s is being gathered already: call %s first", bucket->name,
        bucket->state <= BUCKET_PRE_GATHERED ? "f8_gather" : "f8_post_gather");
}

/* F8_EBUSY if all shared slots are asked for or held by this rank: it would wait for itself. */
static int check_slot(const struct f8_group *group, const struct bucket *bucket)
{
    if (!bucket->shared || group->num_shared < group->slots)
        return F8_OK;
    const struct bucket *other = group->buckets;
    while (!other->shared || other->state < BUCKET_SENDING)
        other++;
    return error_set(F8_EBUSY,
        "all %u shared slots are in use by this rank (one by bucket %s): release one before bucket "
        "%s is gathered",
        group->slots, other->name, bucket->name);
}

/* The error of a pre-gather that has ended, if it has; lock held. */
static int check_pre_gather(struct f8_group *group, struct bucket *bucket)
{
    struct channel *channel = group->client->channel;
    struct channel_reply reply = {.status = F8_OK};
    if (bucket->pre_gather == 0 || !channel_has_reply(channel, bucket->pre_gather))
        return F8_OK;
    int status = channel_wait(channel, bucket->pre_gather, 0, &reply);
    bucket->pre_gather = 0;
    return status == F8_OK ? reply.status : status;
}

/* A bucket's request on its way out. */
struct sending {
    F8__Request request;
    uint64_t generation;
    uint32_t ready; /* the event that it names */
    void *stream;
};

/* Notes what goes with the request of a bucket that others are kept from now; lock held. */
static struct sending begin_sending(
    const struct f8_group *group, const struct bucket *bucket, void *stream)
{
    return (struct sending){.request = F8__REQUEST__INIT,
        .generation = group->generation,
        .ready = bucket->ready,
        .stream = stream};
}

/*
 * Sends a bucket's request and then takes the lock. While it is being sent the bucket's state
 * keeps others from it; `group->buckets` may move, so the bucket is found again by its number.
 */
static int send_and_lock(struct f8_group *group, struct sending *sending, uint64_t *ret_id)
{
    int status = group_record(group, sending->ready, sending->stream);
    if (status == F8_OK)
        status = channel_send(group->client->channel, &sending->request, -1, ret_id);
    pthread_mutex_lock(&group->lock);
    if (group->generation == sending->generation)
        return status;
    if (status == F8_OK)
        channel_abandon(group->client->channel, *ret_id);
    return error_set(F8_ESTALE, "group %s was re-joined meanwhile", group->name);
}

static int pre_gather_bucket(struct f8_group *group, uint32_t bucket, void *stream)
{
    struct bucket *b;
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    status = client_check_stream(group->client, "f8_pre_gather", stream);
    if (status == F8_OK)
        status = check_free(b, BUCKET_IDLE);
    if (status == F8_OK)
        status = group_take_ready(group, &b->ready);
    if (status == F8_OK)
        group_set_state(group, b, BUCKET_PRE_SENDING);
    struct sending sending = begin_sending(group, b, stream);
    pthread_mutex_unlock(&group->lock);
    if (status != F8_OK)
        return status;
    F8__PreGather pre_gather = F8__PRE_GATHER__INIT;
    pre_gather.group = group->id;
    pre_gather.generation = sending.generation;
    pre_gather.bucket = bucket;
    pre_gather.ready = sending.ready;
    sending.request.body_case = F8__REQUEST__BODY_PRE_GATHER;
    sending.request.pre_gather = &pre_gather;
    uint64_t id = 0;
    status = send_and_lock(group, &sending, &id);
    b = &group->buckets[bucket];
    if (group->generation == sending.generation) {
        b->pre_gather = id;
        group_set_state(group, b, status == F8_OK ? BUCKET_PRE_GATHERED : BUCKET_IDLE);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_pre_gather(struct f8_group *group, uint32_t bucket, void *stream)
{
    GROUP_CALL(group, pre_gather_bucket(group, bucket, stream));
}

/* Whether a gather may be asked for; if so the bucket is SENDING. Lock held. */
static int begin_gather(struct f8_group *group, struct bucket *bucket, int64_t deadline_ms)
{
    if (deadline_ms < 0)
        return error_set(F8_EINVAL, "f8_gather: a deadline of %lld ms; give 0 for the default",
            (long long)deadline_ms);
    int status = check_free(bucket, BUCKET_PRE_GATHERED);
    if (status == F8_OK)
        status = check_slot(group, bucket);
    if (status != F8_OK)
        return status;
    status = check_pre_gather(group, bucket);
    if (status != F8_OK) {
        group_set_state(group, bucket, BUCKET_IDLE);
        return status;
    }
    if (bucket->ready == 0) /* else that of the pre-gather, which is recorded anew */
        status = group_take_ready(group, &bucket->ready);
    if (status == F8_OK)
        group_set_state(group, bucket, BUCKET_SENDING);
    return status;
}

static int gather_bucket(struct f8_group *group, uint32_t bucket, int64_t deadline_ms, void *stream)
{
    struct bucket *b;
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    enum bucket_state before = b->state;
    status = client_check_stream(group->client, "f8_gather", stream);
    if (status == F8_OK)
        status = begin_gather(group, b, deadline_ms);
    struct sending sending = begin_sending(group, b, stream);
    pthread_mutex_unlock(&group->lock);
    if (status != F8_OK)
        return status;
    F8__Gather gather = F8__GATHER__INIT;
    gather.group = group->id;
    gather.generation = sending.generation;
    gather.bucket = bucket;
    gather.deadline_ms = (uint64_t)deadline_ms;
    gather.ready = sending.ready;
    sending.request.body_case = F8__REQUEST__BODY_GATHER;
    sending.request.gather = &gather;
    uint64_t id = 0;
    status = send_and_lock(group, &sending, &id);
    b = &group->buckets[bucket];
    if (group->generation == sending.generation) {
        b->gather = id;
        group_set_state(group, b, status == F8_OK ? BUCKET_REQUESTED : before);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_gather(struct f8_group *group, uint32_t bucket, int64_t deadline_ms, void *stream)
{
    GROUP_CALL(group, gather_bucket(group, bucket, deadline_ms, stream));
}

/*
 * The views' mark of a use: those from before the group began anew never match. Its generation
 * does not tell: another daemon counts generations, and uses, from the start.
 */
static uint64_t use_mark(const struct f8_group *group, const struct bucket *bucket)
{
    return (uint64_t)group->entries << 32 | (uint32_t)bucket->use;
}

static void fill_view(
    const struct f8_group *group, const struct bucket *bucket, uint32_t index, struct f8_view *view)
{
    const struct weight *w = &group->weights[index];
    const char *place = bucket_place(group, bucket);
    bool scaled = w->flavour != F8_RAW && w->flavour != F8_RAW_BF16;
    const float *scales = (const float *)(const void *)(place + bucket->scales);
    *view = (struct f8_view){.data = place + w->at,
        .size = w->rows * w->cols * f8_proto_wire_size(w->wire),
        .scale = scaled ? scales + (index - bucket->first) : NULL,
        .ndim = w->ndim,
        .wire = w->wire,
        .dtype = w->dtype,
        .weight = index,
        .generation = use_mark(group, bucket)};
    for (uint32_t i = 0; i < w->ndim; i++)
        view->shape[i] = w->shape[i];
}

/* Whether the place that the daemon names lies in the arena. */
static int check_place(
    const struct f8_group *group, const struct bucket *bucket, const struct channel_reply *reply)
{
    uint64_t offset = reply->first;
    if (reply->body == F8__REPLY__BODY_GATHER && offset % F8_PROTO_ALIGN == 0 &&
        offset <= group->arena_size && bucket->span <= group->arena_size - offset)
        return F8_OK;
    return error_set(F8_EPROTO,
        "the daemon put bucket %s (%llu bytes) at %llu, outside the arena of %llu bytes",
        bucket->name, (unsigned long long)bucket->span, (unsigned long long)offset,
        (unsigned long long)group->arena_size);
}

static void post_release(struct f8_group *group, uint32_t bucket, uint32_t ready)
{
    F8__Release release = F8__RELEASE__INIT;
    release.group = group->id;
    release.generation = group->generation;
    release.bucket = bucket;
    release.ready = ready;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_RELEASE;
    request.release = &release;
    channel_post(group->client->channel, &request);
}

/* Takes the gather's reply; the bucket is held or idle after it. Lock held. */
static int end_gather(
    struct f8_group *group, uint32_t index, const struct channel_reply *reply, void *stream)
{
    struct bucket *bucket = &group->buckets[index];
    int status = reply->status;
    bucket->gather = 0;
    if (status == F8_OK)
        status = check_place(group, bucket, reply);
    if (status == F8_OK)
        status = group_note_place(group, bucket, reply->first);
    if (status != F8_OK) {
        group_set_state(group, bucket, BUCKET_IDLE);
    } else if ((status = check_pre_gather(group, bucket)) != F8_OK ||
               (status = group_wait_done(group, reply->done, stream)) != F8_OK) {
        /* An error is never lost: this rank fails, and gives back what it was given, unread. */
        post_release(group, index, 0);
        group_set_state(group, bucket, BUCKET_IDLE);
    } else {
        bucket->place = reply->first;
        bucket->use = reply->second;
        group_set_state(group, bucket, BUCKET_HELD);
        atomic_fetch_add_explicit(&group->client->gathers, 1, memory_order_relaxed);
    }
    channel_abandon(group->client->channel, bucket->pre_gather);
    bucket->pre_gather = 0;
    return status;
}

/* F8_EORDER unless the bucket is REQUESTED; lock held. */
static int check_requested(const struct bucket *bucket, const char *call)
{
    if (bucket->state == BUCKET_REQUESTED)
        return F8_OK;
    if (bucket->state == BUCKET_HELD)
        return error_set(
            F8_EORDER, "%s of bucket %s, which was waited for and is held", call, bucket->name);
    return error_set(F8_EORDER, "%s of bucket %s without f8_gather", call, bucket->name);
}

/* Checks a post-gather and gives the request to wait for. */
static int begin_post_gather(struct f8_group *group, uint32_t bucket, const struct f8_view *views,
    uint32_t num_views, uint64_t *ret_id)
{
    struct bucket *b;
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    status = check_requested(b, "f8_post_gather");
    if (status == F8_OK && (views ? num_views < b->count : num_views > 0))
        status = error_set(F8_EINVAL,
            "f8_post_gather of bucket %s: %u views given, it has %u weights (or give NULL and 0)",
            b->name, views ? num_views : 0, b->count);
    *ret_id = b->gather;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static int post_gather_bucket(struct f8_group *group, uint32_t bucket, int timeout_ms,
    struct f8_view *views, uint32_t num_views, void *stream)
{
    uint64_t id;
    int status = begin_post_gather(group, bucket, views, num_views, &id);
    if (status == F8_OK)
        status = client_check_stream(group->client, "f8_post_gather", stream);
    if (status != F8_OK)
        return status;
    struct channel_reply reply;
    status = channel_wait(group->client->channel, id, timeout_ms, &reply);
    if (status == F8_EDEADLINE || status == F8_EINTR)
        return status;
    pthread_mutex_lock(&group->lock);
    const struct bucket *b = &group->buckets[bucket];
    if (status == F8_ENOENT || b->gather != id)
        status = error_set(F8_ESTALE,
            "the gather of bucket %s was waited for by another thread, or the group re-joined",
            b->name);
    else
        status = end_gather(group, bucket, &reply, stream);
    for (uint32_t i = 0; status == F8_OK && views && i < b->count; i++)
        fill_view(group, b, b->first + i, &views[i]);
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_post_gather(struct f8_group *group, uint32_t bucket, int timeout_ms, struct f8_view *views,
    uint32_t num_views, void *stream)
{
    GROUP_CALL(group, post_gather_bucket(group, bucket, timeout_ms, views, num_views, stream));
}

static int test_gather(struct f8_group *group, uint32_t bucket, int *ret_done)
{
    struct bucket *b;
    if (group->broken) { /* all that was open is over, as f8_post_gather says */
        *ret_done = 1;
        return F8_OK;
    }
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    bool lost = group->lost; /* and likewise, though no daemon has been found yet */
    if (!lost)
        status = check_requested(b, "f8_gather_test");
    uint64_t id = b->gather;
    pthread_mutex_unlock(&group->lock);
    if (status == F8_OK)
        *ret_done = lost || channel_test(group->client->channel, id);
    return status;
}

int f8_gather_test(struct f8_group *group, uint32_t bucket, int *ret_done)
{
    CLIENT_CALL_LOCAL(group_client(group), test_gather(group, bucket, ret_done));
}

static int check_view(struct f8_group *group, const struct f8_view *view)
{
    int status = F8_OK;
    pthread_mutex_lock(&group->lock);
    if (!view || view->weight >= group->num_weights) {
        status = error_set(F8_EINVAL, "f8_view_check: not a view of group %s", group->name);
    } else {
        uint32_t index = group->weights[view->weight].bucket;
        const struct bucket *b = index == GROUP_NO_BUCKET ? NULL : &group->buckets[index];
        if (!b || b->state != BUCKET_HELD || view->generation != use_mark(group, b))
            status = error_set(F8_ESTALE,
                "the view of weight %u (bucket %s) was released, or is of an earlier gather",
                view->weight, b ? b->name : "none");
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_view_check(struct f8_group *group, const struct f8_view *view)
{
    GROUP_CALL_LOCAL(group, check_view(group, view));
}

/* Releases a bucket, if it is held; lock held. */
static int release(struct f8_group *group, uint32_t index, void *stream)
{
    struct bucket *bucket = &group->buckets[index];
    uint32_t ready = 0;
    if (bucket->state != BUCKET_HELD)
        return error_set(F8_EORDER, "f8_release of bucket %s, which this rank does not hold: %s",
            bucket->name,
            bucket->state == BUCKET_REQUESTED ? "call f8_post_gather first"
                                              : "it was released already or never gathered");
    int status = group_order_release(group, bucket, stream, &ready);
    if (status != F8_OK)
        return status;                  /* the bucket stays held */
    if (!group->lost && !group->broken) /* else it lies with a daemon that is gone */
        post_release(group, index, ready);
    group_set_state(group, bucket, BUCKET_IDLE);
    return F8_OK;
}

static int release_bucket(struct f8_group *group, uint32_t bucket, void *stream)
{
    struct bucket *b;
    int status = client_check_stream(group->client, "f8_release", stream);
    if (status == F8_OK)
        status = group_await_reads(group, stream);
    if (status == F8_OK)
        status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    status = release(group, bucket, stream);
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_release(struct f8_group *group, uint32_t bucket, void *stream)
{
    CLIENT_CALL_LOCAL(group_client(group), release_bucket(group, bucket, stream));
}
