/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics over HTTP, for Prometheus and its like, on a Unix socket or a TCP address: libmicrohttpd,
 * turned by the daemon's own loop, with no thread of its own. Opened by server if it is configured.
 *
 * A scraper cannot hold up a gather: sockets do not block, connections and the bytes that they
 * have not taken have limits, one that is silent is closed, and texts take at most a tenth of
 * the loop's time; past that the answer is 503.
 */
#ifndef F8_DAEMON_METRICS_HTTP_H
#define F8_DAEMON_METRICS_HTTP_H

#include <uv.h>

#include "daemon/config.h"
#include "daemon/metrics.h"

/* Makes the text for a scraper; `owner` as given to metrics_http_open. */
typedef int metrics_maker(void *owner, bool weights, struct metrics_text *ret_text);

struct metrics_http;

/*
 * Serves at the address of the configuration, which has one. F8_EEXIST: somebody serves there;
 * F8_EIO, F8_ENOMEM; F8_EINVAL: this daemon was built without libmicrohttpd.
 */
int metrics_http_open(uv_loop_t *loop, const struct config *config, metrics_maker *make,
    void *owner, struct metrics_http **ret_http, struct reason *reason);

/* Where it serves, with the port that the kernel chose: "http://127.0.0.1:9464/metrics", or the
 * path of a socket. Borrowed: until the close. */
const char *metrics_http_where(const struct metrics_http *http);

/* Ends what is under way; freed when the loop has run once more. NULL allowed. */
void metrics_http_close(struct metrics_http *http);

#endif
