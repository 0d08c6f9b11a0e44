/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of metrics: see metrics_http.h. libmicrohttpd keeps its connections in an epoll
 * of its own, whose descriptor the loop polls; each time that it is ready, or that a connection's
 * time is up, the library is let run once, which never waits. Connections are accepted here: at
 * its limit the library would stop listening until it is next run, and without descriptors spin.
 */
#include "daemon/metrics_http.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/metrics_socket.h"
#include "status.h"

/* Connections at once, and after which silence one is closed. */
#define MAX_CONNECTIONS 256
#define SILENCE_S       10

/* Of one connection: its request's lines. */
#define REQUEST_BYTES ((size_t)8 << 10)

/* Texts that scrapers have not taken yet. Those with weights, which are large, leave room. */
#define UNREAD_BYTES         ((size_t)16 << 20)
#define UNREAD_WEIGHTS_BYTES (UNREAD_BYTES / 2)

/* Time that texts may take of each second of the loop. */
#define WINDOW_NS ((uint64_t)1000000000)
#define BUSY_NS   (WINDOW_NS / 10)

struct metrics_http {
    uv_poll_t listening, poll;
    uv_timer_t timer;
    struct MHD_Daemon *server; /* owned */
    struct metrics_socket socket;
    int spare; /* owned: a descriptor to refuse with when there are no others; -1 */
    metrics_maker *make;
    void *owner; /* borrowed: outlives it */
    size_t unread;
    uint64_t window, busy_ns; /* when the window began, and texts made in it */
    int open_handles;
};

/* A text that is on its way. */
struct sent {
    struct metrics_http *http; /* borrowed: ends its responses first */
    struct metrics_text text;
};

static void free_sent(void *memory)
{
    struct sent *sent = memory;
    sent->http->unread -= sent->text.size;
    free(sent->text.bytes);
    free(sent);
}

static ssize_t read_sent(void *memory, uint64_t offset, char *buffer, size_t size)
{
    const struct sent *sent = memory;
    size_t left = sent->text.size - (size_t)offset;
    size_t n = left < size ? left : size;
    memcpy(buffer, sent->text.bytes + offset, n);
    return (ssize_t)n;
}

/* One answer a connection: requests in a row are those of no scraper. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
    struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(
    struct MHD_Connection *connection, unsigned status, const char *sentence)
{
    return answer(connection, status, "text/plain; charset=utf-8",
        MHD_create_response_from_buffer(
            strlen(sentence), (void *)(uintptr_t)sentence, MHD_RESPMEM_PERSISTENT));
}

/* Whether texts have had their share of the loop. */
static bool is_busy(struct metrics_http *http, uint64_t now)
{
    if (now - http->window >= WINDOW_NS) {
        http->window = now;
        http->busy_ns = 0;
    }
    return http->busy_ns >= BUSY_NS;
}

static enum MHD_Result send_text(
    struct metrics_http *http, struct MHD_Connection *connection, struct metrics_text *text)
{
    struct sent *sent = malloc(sizeof(*sent));
    struct MHD_Response *response = NULL;
    if (sent) {
        *sent = (struct sent){.http = http, .text = *text};
        response =
            MHD_create_response_from_callback(text->size, 32 << 10, read_sent, sent, free_sent);
    }
    if (!response) {
        free(text->bytes);
        free(sent);
        return MHD_NO;
    }
    http->unread += text->size;
    return answer(connection, MHD_HTTP_OK,
        "application/openmetrics-text; version=1.0.0; charset=utf-8", response);
}

static enum MHD_Result serve(struct metrics_http *http, struct MHD_Connection *connection)
{
    struct metrics_text text;
    const char *asked = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "weights");
    bool weights = asked && strcmp(asked, "1") == 0;
    uint64_t begin = uv_hrtime();
    if (is_busy(http, begin))
        return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
            "metrics were asked for too often in this second\n");
    if (http->unread >= (weights ? UNREAD_WEIGHTS_BYTES : UNREAD_BYTES))
        return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
            "too much is under way to others that do not read it\n");
    int status = http->make(http->owner, weights, &text);
    http->busy_ns += uv_hrtime() - begin;
    if (status < 0)
        return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
    return send_text(http, connection, &text);
}

static enum MHD_Result on_request(void *owner, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct metrics_http *http = owner;
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    (void)version;
    (void)upload;
    (void)upload_size;
    (void)state;
    if (!metrics_socket_takes_host(&http->socket, host))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
            "on loopback the Host must be localhost, 127.0.0.1, [::1] or the configured address\n");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (strcmp(url, "/metrics") != 0)
        return refuse(connection, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
    return serve(http, connection);
}

/* What peers do wrong is theirs: the library's lines about it are not the log's. */
static void drop_line(void *unused, const char *format, va_list arguments)
{
    (void)unused;
    (void)format;
    (void)arguments;
}

static void on_timer(uv_timer_t *timer);

/* Lets the library do what it can without waiting, and asks when it wants to be called again. */
static void turn(struct metrics_http *http)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    (void)MHD_run(http->server);
    if (MHD_get_timeout(http->server, &wait_ms) == MHD_YES)
        (void)uv_timer_start(&http->timer, on_timer, wait_ms, 0);
    else
        (void)uv_timer_stop(&http->timer);
}

static void on_timer(uv_timer_t *timer)
{
    turn(timer->data);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn(poll->data);
}

/* Out of descriptors: takes the connection with the spare one, and lets it go. */
static void refuse_one(struct metrics_http *http)
{
    (void)close(http->spare);
    int fd = accept4(http->socket.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    http->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* One at a time, as all that comes: between two the loop has its other events. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct metrics_http *http = poll->data;
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    (void)status;
    (void)events;
    int fd =
        accept4(http->socket.fd, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_one(http);
    if (fd < 0)
        return;
    /* Past the limit it is closed: whoever wants to know more asks again. */
    (void)MHD_add_connection(http->server, fd, (struct sockaddr *)&address, size);
    turn(http);
}

static struct MHD_Daemon *start_server(struct metrics_http *http)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, on_request,
        http, MHD_OPTION_EXTERNAL_LOGGER, drop_line, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES, MHD_OPTION_END);
}

/* No handle is open. */
static void end(struct metrics_http *http)
{
    metrics_socket_remove(&http->socket);
    if (http->server)
        MHD_stop_daemon(http->server);
    (void)close(http->socket.fd);
    if (http->spare >= 0)
        (void)close(http->spare);
    free(http);
}

static void on_closed(uv_handle_t *handle)
{
    struct metrics_http *http = handle->data;
    if (--http->open_handles == 0)
        end(http);
}

static int watch(struct metrics_http *http, uv_loop_t *loop, struct reason *reason)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD);
    int error = info ? uv_poll_init(loop, &http->listening, http->socket.fd) : UV_ENOSYS;
    http->listening.data = http;
    http->open_handles = error == 0;
    if (error == 0)
        error = uv_poll_init(loop, &http->poll, info->epoll_fd);
    if (error < 0)
        return reason_set(
            reason, F8_EIO, "--metrics: libmicrohttpd cannot be polled: %s", uv_strerror(error));
    (void)uv_timer_init(loop, &http->timer);
    http->open_handles = 3;
    http->poll.data = http;
    http->timer.data = http;
    (void)uv_poll_start(&http->poll, UV_READABLE, on_ready);
    (void)uv_poll_start(&http->listening, UV_READABLE, on_connection);
    return F8_OK;
}

int metrics_http_open(uv_loop_t *loop, const struct config *config, metrics_maker *make,
    void *owner, struct metrics_http **ret_http, struct reason *reason)
{
    struct metrics_http *http = calloc(1, sizeof(*http));
    if (!http)
        return reason_set(reason, F8_ENOMEM, "out of memory for --metrics");
    http->make = make;
    http->owner = owner;
    http->spare = -1;
    int status = metrics_socket_open(config, &http->socket, reason);
    if (status < 0) {
        free(http);
        return status;
    }
    http->server = start_server(http);
    status = http->server
                 ? watch(http, loop, reason)
                 : reason_set(reason, F8_EIO, "--metrics %s: libmicrohttpd does not begin: %s",
                       config->metrics, strerror(errno));
    if (status < 0) {
        if (http->open_handles > 0)
            uv_close((uv_handle_t *)&http->listening, on_closed);
        else
            end(http);
        return status;
    }
    http->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    log_info("metrics are served at %s", http->socket.where);
    *ret_http = http;
    return F8_OK;
}

const char *metrics_http_where(const struct metrics_http *http)
{
    return http->socket.where;
}

void metrics_http_close(struct metrics_http *http)
{
    if (!http)
        return;
    uv_close((uv_handle_t *)&http->listening, on_closed);
    uv_close((uv_handle_t *)&http->poll, on_closed);
    uv_close((uv_handle_t *)&http->timer, on_closed);
}
