/* SPDX-License-Identifier: Apache-2.0 */
/* Greeting, joining, dispatch and replies: see session.h. */
#include "daemon/session_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "protocol.h"

void answer_begin(struct answer *answer, uint64_t id)
{
    f8__reply__init(&answer->reply);
    answer->reply.id = id;
    answer->reason.text[0] = '\0';
    answer->fd = -1;
    answer->own_fd = -1;
    answer->scratch = NULL;
}

void answer_send(struct session *session, struct answer *answer, int status)
{
    answer->reply.status = status;
    if (status < 0) {
        answer->reply.body_case = F8__REPLY__BODY__NOT_SET;
        answer->reply.text = answer->reason.text;
        answer->fd = -1;
    }
    session->context->link->send(session->conn, &answer->reply, answer->fd);
    free(answer->scratch);
    if (answer->own_fd >= 0)
        (void)close(answer->own_fd);
}

struct session *session_new(
    struct session_context *context, const struct session_peer *peer, void *conn)
{
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->context = context;
    session->peer = *peer;
    session->conn = conn;
    session->next = context->sessions;
    if (session->next)
        session->next->prev = session;
    context->sessions = session;
    context->connections++;
    return session;
}

void session_leave_groups(struct session *session, bool died)
{
    struct collective_context *collective = &session->context->collective;
    /* A group that breaks answers all who wait in those that share amaxes with it: not us. */
    bool held = collective_hold(collective);
    while (session->members) {
        struct member *member = session->members;
        session->members = member->sibling;
        collective_leave(member, died);
    }
    collective_let_go(collective, held);
    session->num_members = 0;
}

void later_begin(struct later_reply *later, struct session *session, uint64_t id)
{
    *later = (struct later_reply){.session = session,
        .next = session->later,
        .backend = session->context->collective.cuda,
        .id = id};
    session->later = later;
}

struct session *later_end(struct later_reply *later)
{
    struct session *session = later->session;
    if (!session)
        return NULL;
    struct later_reply **link = &session->later;
    while (*link != later)
        link = &(*link)->next;
    *link = later->next;
    return session;
}

/* Who waits goes on without an answer. */
static void forget_later(struct session *session)
{
    for (struct later_reply *l = session->later; l; l = l->next) {
        if (session->job) /* an operator has none, and adds no region */
            registry_discharge_region(session->job, l->charged);
        l->session = NULL;
    }
}

const char *session_job_name(const struct session *session)
{
    return session->job ? session->job->name : NULL;
}

bool session_is_leaving(const struct session *session)
{
    return session->leaving || !session->greeted;
}

static void unlink_session(struct session *session)
{
    if (session->prev)
        session->prev->next = session->next;
    else
        session->context->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
}

void session_free(struct session *session, bool died)
{
    struct job *job = session->job;
    if (session->waits_for)
        session_stop_waiting(session);
    session_leave_groups(session, died && !session->leaving);
    session_drop_regions(session);
    session_drop_device(session);
    session_end_watch(session);
    forget_later(session);
    if (job)
        registry_leave_job(job);
    unlink_session(session);
    session->context->connections--;
    free(session);
}

int session_member(const struct session *session, uint32_t group, struct member **ret_member,
    struct reason *reason)
{
    for (struct member *member = session->members; member; member = member->sibling)
        if (member->group->id == group) {
            *ret_member = member;
            return F8_OK;
        }
    return reason_set(reason, F8_ENOENT, "group %u: this client has not joined it", group);
}

static int handle_ping(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    (void)incoming;
    f8__ping_reply__init(&answer->body.ping);
    answer->body.ping.uptime_ms =
        uv_now(session->context->collective.loop) - session->context->started;
    answer->reply.body_case = F8__REPLY__BODY_PING;
    answer->reply.ping = &answer->body.ping;
    return F8_OK;
}

static int check_version(const F8__Hello *hello, struct reason *reason)
{
    if (hello->major == F8_PROTO_MAJOR)
        return F8_OK;
    return reason_set(reason, F8_EVERSION,
        "the client (library %.40s) speaks protocol %u.%u, this daemon (f8gatherd %s) speaks "
        "%d.%d: "
        "install versions that go together",
        hello->library_version, hello->major, hello->minor, F8_VERSION, F8_PROTO_MAJOR,
        F8_PROTO_MINOR);
}

int session_check_name(const char *what, const char *name, struct reason *reason)
{
    char buffer[F8_PROTO_FAULT_SIZE];
    const char *fault = f8_proto_name_fault(name, buffer);
    return fault ? reason_set(reason, F8_EINVAL, "the name of the %s %s", what, fault) : F8_OK;
}

/* A client that names what it can do must be able to map what this daemon hands out. */
static int check_capabilities(const F8__Hello *hello, struct reason *reason)
{
    uint64_t set = f8_proto_capability_set(hello->capabilities, hello->n_capabilities);
    if (hello->n_capabilities == 0 || set & f8_proto_capability_bit(F8_CAPABILITY_ARENA_MEMFD))
        return F8_OK;
    return reason_set(reason, F8_EVERSION,
        "the client (library %.40s) cannot map arenas that are memfds, and f8gatherd %s has no "
        "others",
        hello->library_version, F8_VERSION);
}

static int greet_trainer(struct session *session, const F8__Hello *hello, struct reason *reason)
{
    int status = session_check_name("job", hello->job, reason);
    if (status == F8_OK)
        status = check_capabilities(hello, reason);
    if (status < 0)
        return status;
    return registry_enter_job(session->context->registry, session->peer.uid, hello->job,
        hello->token.data, hello->token.len, uv_now(session->context->collective.loop),
        &session->job, reason);
}

static int greet_admin(struct session *session, struct reason *reason)
{
    const struct config *config = registry_config(session->context->registry);
    session->admin = session->peer.admin;
    if (session->admin)
        return F8_OK;
    (void)reason_set(reason, F8_EPERM,
        "uid %u may not inspect or administer this daemon: it takes root, the daemon's own uid, or "
        "membership of its admin-group, which is ",
        (unsigned)session->peer.uid);
    if (config->has_admin_gid)
        reason_append(reason, "gid %u", (unsigned)config->admin_gid);
    else
        reason_append(reason, "not set: admin-group = NAME in f8gatherd.conf, or --admin-group");
    return F8_EPERM;
}

static int handle_hello(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Hello *hello = incoming->request->hello;
    if (session->greeted)
        return reason_set(&answer->reason, F8_EORDER, "Hello comes once, as the first request");
    int status = check_version(hello, &answer->reason);
    if (status == F8_OK && hello->role == F8__ROLE__ADMIN)
        status = greet_admin(session, &answer->reason);
    else if (status == F8_OK)
        status = greet_trainer(session, hello, &answer->reason);
    if (status < 0)
        return status;
    session->greeted = true;
    F8__HelloReply *reply = &answer->body.hello;
    f8__hello_reply__init(reply);
    reply->major = F8_PROTO_MAJOR;
    reply->minor = F8_PROTO_MINOR;
    reply->daemon_version = F8_VERSION;
    reply->credit = registry_config(session->context->registry)->credit;
    reply->pid = (uint32_t)getpid();
    /* All that the list has, its last only with devices; protobuf-c wants pointers that it may
     * free. */
    reply->capabilities = (char **)f8_proto_capabilities;
    reply->n_capabilities =
        session->context->collective.cuda ? F8_CAPABILITY_COUNT : F8_CAPABILITY_REGION_CUDA;
    answer->reply.body_case = F8__REPLY__BODY_HELLO;
    answer->reply.hello = reply;
    return F8_OK;
}

/* What trainers have no right to. */
static bool is_operators(F8__Request__BodyCase body)
{
    return body == F8__REQUEST__BODY_INSPECT || body == F8__REQUEST__BODY_IMPORT ||
           body == F8__REQUEST__BODY_METRICS || body == F8__REQUEST__BODY_RESET_AMAX ||
           body == F8__REQUEST__BODY_EVICT || body == F8__REQUEST__BODY_DRAIN ||
           body == F8__REQUEST__BODY_LOG_LEVEL || body == F8__REQUEST__BODY_SNAPSHOT ||
           body == F8__REQUEST__BODY_WATCH;
}

/* Who may ask: nothing but Hello before Hello, trainers and operators each their own. */
static int check_role(
    const struct session *session, F8__Request__BodyCase body, struct reason *reason)
{
    if (body == F8__REQUEST__BODY_HELLO)
        return F8_OK;
    if (!session->greeted)
        return reason_set(reason, F8_EORDER, "the first request of a connection must be Hello");
    if (body == F8__REQUEST__BODY_PING || body == F8__REQUEST__BODY_GOODBYE)
        return F8_OK;
    bool operators = is_operators(body);
    bool both = body == F8__REQUEST__BODY_EXPORT || body == F8__REQUEST__BODY_UNIQUE_ID;
    if (session->admin != operators && !both)
        return reason_set(reason, F8_EPERM,
            session->admin
                ? "an operator's connection takes no part in training: it inspects and administers"
                : "a trainer's connection may not inspect, import or administer");
    return F8_OK;
}

static int handle_goodbye(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    (void)incoming;
    (void)answer;
    session->leaving = true;
    return F8_OK;
}

static session_handler *const handlers[] = {
    [F8__REQUEST__BODY_HELLO] = handle_hello,
    [F8__REQUEST__BODY_PING] = handle_ping,
    [F8__REQUEST__BODY_REGION_ADD] = session_region_add,
    [F8__REQUEST__BODY_REGION_DROP] = session_region_drop,
    [F8__REQUEST__BODY_JOIN] = session_join,
    [F8__REQUEST__BODY_REGISTER] = session_register,
    [F8__REQUEST__BODY_SEAL] = session_seal,
    [F8__REQUEST__BODY_PRECOMPUTE] = session_precompute,
    [F8__REQUEST__BODY_PRE_GATHER] = session_pre_gather,
    [F8__REQUEST__BODY_GATHER] = session_gather,
    [F8__REQUEST__BODY_RELEASE] = session_release,
    [F8__REQUEST__BODY_CHANGED] = session_changed,
    [F8__REQUEST__BODY_QUIESCE] = session_quiesce,
    [F8__REQUEST__BODY_WEIGHT_MOVE] = session_weight_move,
    [F8__REQUEST__BODY_INSPECT] = session_inspect,
    [F8__REQUEST__BODY_SYNC] = session_sync,
    [F8__REQUEST__BODY_INVALIDATE] = session_invalidate,
    [F8__REQUEST__BODY_EXPORT] = session_export,
    [F8__REQUEST__BODY_IMPORT] = session_import,
    [F8__REQUEST__BODY_GOODBYE] = handle_goodbye,
    [F8__REQUEST__BODY_DEVICE_ADD] = session_device_add,
    [F8__REQUEST__BODY_DEVICE_DROP] = session_device_drop,
    [F8__REQUEST__BODY_UNIQUE_ID] = session_unique_id,
    [F8__REQUEST__BODY_METRICS] = session_metrics,
    [F8__REQUEST__BODY_SNAPSHOT] = session_snapshot,
    [F8__REQUEST__BODY_RESET_AMAX] = session_reset_amax,
    [F8__REQUEST__BODY_EVICT] = session_evict,
    [F8__REQUEST__BODY_DRAIN] = session_drain_asked,
    [F8__REQUEST__BODY_LOG_LEVEL] = session_log_level,
    [F8__REQUEST__BODY_WATCH] = session_watch,
};

/* What nobody waits for is never answered, not even when it is refused. */
static bool has_reply(F8__Request__BodyCase body)
{
    return body != F8__REQUEST__BODY_RELEASE && body != F8__REQUEST__BODY_GOODBYE;
}

static int dispatch(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    F8__Request__BodyCase body = incoming->request->body_case;
    if (incoming->request->id == 0 && has_reply(body))
        return reason_set(&answer->reason, F8_EPROTO,
            "a request has the id 0: count from 1, 0 is for what has no reply");
    bool known = (size_t)body < sizeof(handlers) / sizeof(handlers[0]) && handlers[body];
    if (!known)
        return reason_set(&answer->reason, F8_EUNKNOWN,
            "request %" PRIu64 " is of a kind that f8gatherd %s does not know",
            incoming->request->id, F8_VERSION);
    int status = check_role(session, body, &answer->reason);
    return status < 0 ? status : handlers[body](session, incoming, answer);
}

bool session_handle(
    struct session *session, const F8__Request *request, const int *fds, uint32_t num_fds)
{
    struct incoming incoming = {.request = request, .fds = fds, .num_fds = num_fds};
    struct answer answer;
    answer_begin(&answer, request->id);
    uint64_t begin = uv_hrtime();
    int status = dispatch(session, &incoming, &answer);
    if (!has_reply(request->body_case))
        return false;
    if (status != SESSION_PENDING) {
        answer_send(session, &answer, status);
        histogram_observe(&session->context->collective.counters.rpc, uv_hrtime() - begin);
    }
    return true;
}
