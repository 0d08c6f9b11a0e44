/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pings for the channel's tests. Asserts on the thread that calls.
 */
#include "tests/lib/pings.h"

#include <string.h>

#include "client/error.h"

struct channel *open_channel(struct fake_daemon *daemon, fake_script *script)
{
    struct channel *channel = NULL;
    fake_start(daemon, script);
    const struct channel_options options = {.socket = daemon->socket, .job = "test"};
    ck_assert_msg(channel_open(&options, &channel) == F8_OK, "%s", error_text());
    return channel;
}

void finish(struct fake_daemon *daemon, struct channel *channel)
{
    channel_close(channel);
    fake_stop(daemon);
}

void assert_text(const char *part)
{
    ck_assert_msg(strstr(error_text(), part), "\"%s\" lacks \"%s\"", error_text(), part);
}

uint64_t send_ping(struct channel *channel)
{
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    uint64_t id = 0;
    int status = channel_send(channel, &request, -1, &id);
    ck_assert_msg(status == F8_OK, "%s", error_text());
    return id;
}

void await_ping(struct channel *channel, uint64_t id)
{
    struct channel_reply reply;
    ck_assert_int_eq(channel_wait(channel, id, -1, &reply), F8_OK);
    ck_assert_int_eq(reply.status, F8_OK);
    ck_assert_int_eq(reply.body, F8__REPLY__BODY_PING);
    ck_assert_uint_eq(reply.first, id);
}

void post_release(struct channel *channel, uint32_t bucket)
{
    F8__Release release = F8__RELEASE__INIT;
    release.bucket = bucket;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_RELEASE;
    request.release = &release;
    channel_post(channel, &request);
}

bool reply_ping(int fd, uint64_t id, const char *text)
{
    F8__PingReply ping = F8__PING_REPLY__INIT;
    ping.uptime_ms = id;
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = id;
    reply.text = (char *)(uintptr_t)text;
    reply.body_case = F8__REPLY__BODY_PING;
    reply.ping = &ping;
    return fake_reply(fd, &reply, -1);
}
