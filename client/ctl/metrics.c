/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl metrics: the text that the daemon makes of its counters, as it is. It comes in a sealed
 * memfd. Called by main with a connected channel.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/print_json.h"
#include "client/error.h"

static int ask_metrics(struct ctl *ctl, struct channel_reply *ret_reply)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Metrics metrics = F8__METRICS__INIT;
    struct channel_reply reply = {.fd = -1};
    struct stat stat;
    int status;

    metrics.weights = (ctl->given & CTL_TAKES_WEIGHTS) != 0;
    request.body_case = F8__REQUEST__BODY_METRICS;
    request.metrics = &metrics;
    status = ctl_ask(ctl, &request, -1, &reply);
    if (status == F8_OK &&
        (reply.body != F8__REPLY__BODY_METRICS || reply.fd < 0 || fstat(reply.fd, &stat) != 0 ||
            (uint64_t)stat.st_size != reply.first || stat.st_size == 0)) {
        status = error_set(F8_EPROTO, "the daemon answered metrics without their text");
    }
    if (status != F8_OK && reply.fd >= 0) {
        close(reply.fd);
    }
    *ret_reply = reply;
    return status;
}

/* {"metrics": {"format": "openmetrics", "text": "..."}} */
static int print_object(struct ctl *ctl, int fd, size_t size)
{
    char *text = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    int result;

    if (text == MAP_FAILED) {
        return ctl_failed(error_set(F8_EIO, "the text of metrics: %s", strerror(errno)));
    }
    result = json_print(
        ctl, "metrics", json_pack("{s:s, s:s%}", "format", "openmetrics", "text", text, size));
    munmap(text, size);
    return result;
}

int command_metrics(struct ctl *ctl)
{
    struct channel_reply reply;
    uint64_t size;
    int status = ask_metrics(ctl, &reply);
    int result;

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->json) {
        result = print_object(ctl, reply.fd, (size_t)reply.first);
    } else {
        fflush(stdout);
        status = ctl_copy_all(reply.fd, STDOUT_FILENO, "standard output", &size);
        result = status == F8_OK ? CTL_OK : ctl_failed(status);
    }
    close(reply.fd);
    return result;
}
