/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of metrics, for an operator's request and for HTTP: see session.h. It goes in a memfd,
 * whole, so that all its numbers are of one moment. On the loop.
 */
#include "daemon/session_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int session_metrics_text(void *context, bool weights, struct metrics_text *ret_text)
{
    const struct session_context *sessions = context;
    const struct metrics_source source = {
        .registry = sessions->registry,
        .collective = &sessions->collective,
        .saver = sessions->saver,
        .uptime_ms = uv_now(sessions->collective.loop) - sessions->started,
        .connections = sessions->connections,
    };
    return metrics_make(&source, weights, ret_text);
}

int session_metrics(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    struct metrics_text text;
    int status = session_metrics_text(session->context, incoming->request->metrics->weights, &text);
    if (status < 0)
        return reason_set(&answer->reason, status, "out of memory for the text of metrics");
    answer->own_fd = session_sealed_copy("f8gather-metrics", text.bytes, text.size);
    free(text.bytes);
    if (answer->own_fd < 0)
        return reason_set(
            &answer->reason, F8_ENOMEM, "cannot make a memfd for metrics: %s", strerror(errno));
    F8__MetricsReply *reply = &answer->body.metrics;
    f8__metrics_reply__init(reply);
    reply->size = text.size;
    answer->fd = answer->own_fd;
    answer->reply.body_case = F8__REPLY__BODY_METRICS;
    answer->reply.metrics = reply;
    return F8_OK;
}
