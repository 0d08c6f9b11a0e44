/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_http.h where there is no libmicrohttpd: who asks for HTTP is told so at the start, by
 * server, and f8ctl metrics still serves.
 */
#include "daemon/metrics_http.h"

#include "status.h"

int metrics_http_open(uv_loop_t *loop, const struct config *config, metrics_maker *make,
    void *owner, struct metrics_http **ret_http, struct reason *reason)
{
    (void)loop;
    (void)make;
    (void)owner;
    (void)ret_http;
    return reason_set(reason, F8_EINVAL,
        "--metrics %s: this f8gatherd was built without libmicrohttpd; f8ctl metrics works",
        config->metrics);
}

const char *metrics_http_where(const struct metrics_http *http)
{
    (void)http;
    return NULL;
}

void metrics_http_close(struct metrics_http *http)
{
    (void)http;
}
