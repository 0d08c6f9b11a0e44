/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: see conn.h. A socket is read only while fewer requests are open than the credit
 * allows, so a client that does not read its replies stops itself and no one else.
 */
#include "daemon/conn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/outq.h"
#include "daemon/peer.h"
#include "protocol.h"

/* Packets of one connection in a row, before the loop looks at the others. */
#define READ_BURST 16

/* Replies that may wait in bytes, whatever the credit. */
#define MAX_WAITING ((size_t)1 << 20)

/* Descriptors on one packet: as many as any request takes, or more to refuse them by name. */
#define MAX_FDS F8_PROTO_MAX_FDS

struct conn {
    struct conn_context *context; /* borrowed: outlives it */
    struct session *session;      /* owned; NULL once closing */
    struct conn *next, *prev;     /* borrowed: the context's list */
    struct outq out;
    struct peer peer;
    int fd;           /* owned */
    uint32_t open;    /* requests without a reply in the socket */
    int events;       /* that the socket is polled for */
    int open_handles; /* poll handles that are not closed yet */
    bool broken;      /* sending failed: the end is on its way */
    uv_poll_t socket_poll;
    uv_poll_t death_poll; /* on peer.pidfd, if there is one */
};

/* A packet as it came in. */
struct packet {
    size_t size;
    int fds[MAX_FDS];
    uint32_t num_fds;
    bool lost_fds; /* some could not be received */
};

static void conn_close(struct conn *conn, bool died);
static void on_socket(uv_poll_t *poll, int status, int events);

static bool may_read(const struct conn *conn)
{
    return conn->open < conn->context->config->credit && outq_bytes(&conn->out) < MAX_WAITING;
}

/* Polls for what the connection can use now; UV_DISCONNECT always. */
static void update_events(struct conn *conn)
{
    int events = UV_DISCONNECT | (may_read(conn) ? UV_READABLE : 0) |
                 (conn->out.count > 0 || conn->broken ? UV_WRITABLE : 0);
    if (events == conn->events || !conn->session)
        return;
    conn->events = events;
    (void)uv_poll_start(&conn->socket_poll, events, on_socket);
}

/* One sendmsg: F8_OK, F8_EBUSY if the socket is full, F8_ECONN. */
static int send_packet(int socket, const void *data, size_t size, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control.room);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return F8_OK;
    return errno == EAGAIN || errno == EWOULDBLOCK ? F8_EBUSY : F8_ECONN;
}

/* Sends what waits, as far as the socket takes it. */
static void flush(struct conn *conn)
{
    while (conn->out.count > 0 && !conn->broken) {
        struct outq_packet packet = outq_first(&conn->out);
        int status = send_packet(conn->fd, packet.data, packet.size, packet.fd);
        if (status == F8_EBUSY)
            return;
        conn->broken = status < 0;
        outq_pop(&conn->out);
        conn->open--;
    }
}

/* Packs a reply into the shared packet buffer; one that is too large becomes an error. */
static size_t pack(struct conn *conn, const F8__Reply *reply)
{
    F8__Reply replacement = F8__REPLY__INIT;
    if (f8__reply__get_packed_size(reply) > F8_PROTO_MAX_PACKET) {
        replacement.id = reply->id;
        replacement.status = F8_EINTERNAL;
        replacement.text = (char *)"the reply does not fit in a packet";
        reply = &replacement;
    }
    return f8__reply__pack(reply, conn->context->packet);
}

/* Upward from session. The request that this answers was counted when it came. */
static void on_send(void *data, const F8__Reply *reply, int fd)
{
    struct conn *conn = data;
    if (conn->broken || !conn->session)
        return;
    size_t size = pack(conn, reply);
    int status = F8_EBUSY;
    if (conn->out.count == 0)
        status = send_packet(conn->fd, conn->context->packet, size, fd);
    if (status == F8_OK)
        conn->open--;
    else if (status == F8_EBUSY)
        conn->broken = outq_push(&conn->out, conn->context->packet, size, fd) < 0;
    else
        conn->broken = true;
    update_events(conn);
}

const struct session_link conn_session_link = {.send = on_send};

static void take_fds(struct msghdr *message, struct packet *packet)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        packet->num_fds = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(packet->fds, CMSG_DATA(c), packet->num_fds * sizeof(int));
    }
}

static void close_fds(const struct packet *packet)
{
    for (uint32_t i = 0; i < packet->num_fds; i++)
        (void)close(packet->fds[i]);
}

/*
 * Whether a failed recvmsg is to be called again at once. A reset is told once, when the peer
 * closed with replies unread; what it had sent before is still there.
 */
static bool is_repeatable(int error)
{
    return error == EINTR || error == ECONNRESET;
}

/* One recvmsg: 1 for a packet, 0 for none now, F8_ECONN at the end, F8_EPROTO. */
static int receive_packet(struct conn *conn, struct packet *packet)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = conn->context->packet, .iov_len = F8_PROTO_MAX_PACKET};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.room)};
    ssize_t n;
    do
        n = recvmsg(conn->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && is_repeatable(errno));
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : F8_ECONN;
    packet->num_fds = 0;
    take_fds(&message, packet);
    packet->size = (size_t)n;
    /* Cut descriptors with room left: it is us who have none for them. */
    packet->lost_fds = (message.msg_flags & MSG_CTRUNC) && packet->num_fds < MAX_FDS;
    bool whole =
        !(message.msg_flags & MSG_TRUNC) && (packet->lost_fds || !(message.msg_flags & MSG_CTRUNC));
    if (whole && n > 0)
        return 1;
    /* A packet of no bytes is taken for the end; even it may have brought descriptors. */
    close_fds(packet);
    return whole ? F8_ECONN : F8_EPROTO;
}

/* Unpacks and serves one packet; F8_EPROTO if it is none of the protocol. */
static int serve_packet(struct conn *conn, const struct packet *packet)
{
    struct conn_context *context = conn->context;
    F8__Request *request =
        f8__request__unpack(&context->unpack.allocator, packet->size, context->packet);
    if (request) {
        conn->open++;
        uint32_t num_fds = packet->lost_fds ? SESSION_FDS_LOST : packet->num_fds;
        if (!session_handle(conn->session, request, packet->fds, num_fds))
            conn->open--;
    }
    unpack_reset(&context->unpack);
    close_fds(packet);
    return request ? F8_OK : F8_EPROTO;
}

/* One packet: 1 if it was served, 0 for none now, F8_ECONN at the end, F8_EPROTO. */
static int read_packet(struct conn *conn)
{
    struct packet packet;
    int status = receive_packet(conn, &packet);
    if (status > 0 && serve_packet(conn, &packet) < 0)
        status = F8_EPROTO;
    if (status == F8_EPROTO && log_allows(&conn->context->strays, uv_now(conn->context->loop)))
        log_of(&(struct log_fields){.pid = conn->peer.pid}, LOG_LEVEL_WARNING,
            "pid %u (uid %u) sent a packet that is not of the protocol: disconnected",
            conn->peer.pid, (unsigned)conn->peer.uid);
    return status;
}

static void read_burst(struct conn *conn)
{
    for (int i = 0; i < READ_BURST && may_read(conn); i++) {
        int status = read_packet(conn);
        if (status == 0)
            break;
        if (status < 0) {
            conn_close(conn, peer_is_dying(&conn->peer));
            return;
        }
    }
    update_events(conn);
}

/*
 * What a peer that is gone had sent still counts, and all of it now: whoever closes and connects
 * anew, or lets another process do so, finds its rank free. It is no more than a socket holds, as
 * nothing can come after it.
 */
static void read_rest(struct conn *conn)
{
    (void)shutdown(conn->fd, SHUT_RD);
    while (may_read(conn) && read_packet(conn) > 0)
        continue;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    if (status == 0 && events & UV_WRITABLE)
        flush(conn);
    /* A status is a reset. */
    if (conn->broken || status < 0 || events & UV_DISCONNECT) {
        read_rest(conn);
        conn_close(conn, peer_is_dying(&conn->peer));
    } else if (events & UV_READABLE) {
        read_burst(conn);
    } else {
        update_events(conn);
    }
}

static void on_death(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    (void)status;
    (void)events;
    read_rest(conn);
    conn_close(conn, true);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    if (--conn->open_handles > 0)
        return;
    (void)close(conn->fd);
    peer_done(&conn->peer);
    outq_done(&conn->out);
    free(conn);
}

static void unlink_conn(struct conn *conn)
{
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        conn->context->first = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
}

/* A client is named with its job, an operator is not in one. */
static void log_end(const struct conn *conn, bool died)
{
    const struct log_fields fields = {
        .job = session_job_name(conn->session), .pid = conn->peer.pid};
    log_of(&fields, LOG_LEVEL_DEBUG, "pid %u (uid %u)%s%s %s", conn->peer.pid,
        (unsigned)conn->peer.uid, fields.job ? " of job " : "", fields.job ? fields.job : "",
        died && !session_is_leaving(conn->session) ? "died" : "disconnected");
}

static void conn_close(struct conn *conn, bool died)
{
    struct session *session = conn->session;
    if (!session)
        return;
    log_end(conn, died);
    conn->session = NULL;
    session_free(session, died);
    unlink_conn(conn);
    uv_close((uv_handle_t *)&conn->socket_poll, on_handle_closed);
    if (conn->peer.pidfd >= 0)
        uv_close((uv_handle_t *)&conn->death_poll, on_handle_closed);
}

static int start_polls(struct conn *conn)
{
    uv_loop_t *loop = conn->context->loop;
    if (uv_poll_init(loop, &conn->socket_poll, conn->fd) < 0)
        return F8_EIO;
    conn->socket_poll.data = conn;
    conn->open_handles++;
    if (conn->peer.pidfd < 0)
        return F8_OK;
    if (uv_poll_init(loop, &conn->death_poll, conn->peer.pidfd) < 0)
        return F8_EIO;
    conn->death_poll.data = conn;
    conn->open_handles++;
    (void)uv_poll_start(&conn->death_poll, UV_READABLE, on_death);
    return F8_OK;
}

/* A connection that could not be set up: nobody was told of it yet. */
static void give_up(struct conn *conn, const char *why)
{
    if (log_allows(&conn->context->refusals, uv_now(conn->context->loop)))
        log_of(&(struct log_fields){.pid = conn->peer.pid}, LOG_LEVEL_ERROR,
            "a connection of pid %u (uid %u) is refused: %s", conn->peer.pid,
            (unsigned)conn->peer.uid, why);
    if (conn->session)
        session_free(conn->session, false);
    conn->session = NULL;
    if (conn->open_handles == 0) {
        (void)close(conn->fd);
        peer_done(&conn->peer);
        free(conn);
        return;
    }
    conn->open_handles = 1; /* only the socket's poll was set up */
    uv_close((uv_handle_t *)&conn->socket_poll, on_handle_closed);
}

static void insert_conn(struct conn *conn)
{
    conn->next = conn->context->first;
    if (conn->next)
        conn->next->prev = conn;
    conn->context->first = conn;
}

static void log_surplus(int fd, const struct reason *reason)
{
    struct peer peer = {.pidfd = -1};
    (void)peer_identify(&peer, fd); /* it may be gone by now */
    log_of(&(struct log_fields){.pid = peer.pid}, LOG_LEVEL_WARNING,
        "a connection of pid %u (uid %u) is refused: %s", peer.pid, (unsigned)peer.uid,
        reason->text);
    peer_done(&peer);
}

/* Too many are here already: the newcomer is told so, under the id that stands for all requests. */
static bool refuse_surplus(struct conn_context *context, int fd)
{
    if (context->session->connections < context->config->max_connections)
        return false;
    F8__Reply reply = F8__REPLY__INIT;
    struct reason reason;
    reply.status = reason_set(&reason, F8_ELIMIT,
        "the daemon has %u connections, the limit (--max-connections)",
        context->session->connections);
    reply.text = reason.text;
    size_t size = f8__reply__pack(&reply, context->packet);
    (void)send_packet(fd, context->packet, size, -1);
    /* Closing over an unread Hello would reach the peer as a reset, before our words. */
    (void)recv(fd, context->packet, F8_PROTO_MAX_PACKET, MSG_DONTWAIT);
    if (log_allows(&context->refusals, uv_now(context->loop)))
        log_surplus(fd, &reason);
    (void)close(fd);
    return true;
}

void conn_open(struct conn_context *context, int fd)
{
    if (refuse_surplus(context, fd))
        return;
    struct conn *conn = calloc(1, sizeof(*conn));
    if (!conn) {
        (void)close(fd);
        return;
    }
    conn->context = context;
    conn->fd = fd;
    int status = peer_identify(&conn->peer, fd);
    if (status < 0) {
        give_up(conn, status == F8_ELIMIT ? "out of file descriptors (raise LimitNOFILE)"
                                          : "its process is gone");
        return;
    }
    struct session_peer peer = {.uid = conn->peer.uid,
        .pid = conn->peer.pid,
        .admin = peer_is_admin(&conn->peer, fd, context->config)};
    conn->session = session_new(context->session, &peer, conn);
    if (!conn->session || start_polls(conn) < 0) {
        give_up(conn, "out of memory");
        return;
    }
    insert_conn(conn);
    update_events(conn);
}

/* From here on the client hears nothing more: not that others leave, which they do as it does. */
static void say_last_words(struct conn *conn)
{
    F8__Reply reply = F8__REPLY__INIT;
    reply.status = F8_ECONN;
    reply.text = (char *)"f8gatherd was told to end";
    if (conn->out.count == 0 && !conn->broken)
        (void)send_packet(conn->fd, conn->context->packet, pack(conn, &reply), -1);
    conn->broken = true;
}

void conn_close_all(struct conn_context *context)
{
    for (struct conn *conn = context->first; conn; conn = conn->next)
        say_last_words(conn);
    while (context->first)
        conn_close(context->first, false);
}

int conn_context_init(struct conn_context *context, uv_loop_t *loop, const struct config *config,
    struct session_context *session)
{
    *context = (struct conn_context){.loop = loop, .config = config, .session = session};
    context->packet = malloc(F8_PROTO_MAX_PACKET);
    if (!context->packet || unpack_init(&context->unpack) < 0) {
        conn_context_done(context);
        return F8_ENOMEM;
    }
    return F8_OK;
}

void conn_context_done(struct conn_context *context)
{
    unpack_done(&context->unpack);
    free(context->packet);
    context->packet = NULL;
}
