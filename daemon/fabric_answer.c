/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of the helper of a fabric: read as they come, straight to where their payloads belong.
 * The helper is of this daemon's own build, or is found to be of another as it opens; one that
 * answers nonsense fails its fabric all the same. Called on the loop.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/fabric_private.h"
#include "proto/status.h"

#define MAX_ADDRESS (64u << 10)

/* Which payload goes with the answer; false: none can be that large. */
static bool place_payload(struct fabric *fabric)
{
    struct fabric_in *in = &fabric->in;
    uint64_t size = in->answer.payload;
    if (in->answer.status < 0) {
        in->payload = (uint8_t *)fabric->reason.text;
        return size < sizeof(fabric->reason.text);
    }
    switch (fabric->command) {
    case FABRIC_OPEN:
        if (fabric->opened || size < sizeof(FABRIC_VERSION) || size > MAX_ADDRESS)
            return false;
        in->payload = fabric->opened = malloc(size);
        fabric->opened_size = size;
        return fabric->opened != NULL;
    case FABRIC_REDUCE:
        in->payload = (uint8_t *)fabric->values;
        return size == (uint64_t)fabric->num_values * sizeof(*fabric->values);
    case FABRIC_CONNECT:
    case FABRIC_MAP:
    case FABRIC_EXCHANGE:
        break;
    }
    return size == 0;
}

/* The answer without its payload is there. */
static bool accept_answer(struct fabric *fabric)
{
    const struct fabric_answer *answer = &fabric->in.answer;
    if (fabric->busy && answer->command == fabric->command && place_payload(fabric))
        return true;
    fabric_fail(fabric, F8_EIO,
        "the engine (" FABRIC_HELPER ", pid %d) answered nonsense: command %" PRIu32
        ", status %" PRId32 ", %" PRIu64 " bytes",
        fabric->process.pid, answer->command, answer->status, answer->payload);
    return false;
}

/* Whether the helper is of this daemon's build. */
static bool is_of_this_build(const struct fabric *fabric)
{
    uint64_t version;
    if (fabric->command != FABRIC_OPEN)
        return true;
    memcpy(&version, fabric->opened, sizeof(version));
    return version == FABRIC_VERSION;
}

static void take_answer(struct fabric *fabric)
{
    struct fabric_answer answer = fabric->in.answer;
    fabric->in = (struct fabric_in){0};
    fabric->sent = answer.sent;
    fabric->received = answer.received;
    if (answer.status < 0) {
        fabric->reason.text[answer.payload] = '\0';
        fabric->status = answer.status;
        fabric_fail(fabric, answer.status, "%s", ""); /* it has its reason */
        return;
    }
    if (!is_of_this_build(fabric)) {
        fabric_fail(fabric, F8_EMISMATCH,
            "the engine (" FABRIC_HELPER ", pid %d) is of another version than this daemon, which "
            "runs since before an upgrade: restart f8gatherd",
            fabric->process.pid);
        return;
    }
    (void)uv_timer_stop(&fabric->deadline);
    fabric->busy = false;
    fabric->values = NULL;
    fabric->listener->done(fabric, fabric->command);
}

/* Reads up to `end` bytes of answer and payload; whether they are there. */
static bool read_until(struct fabric *fabric, size_t end)
{
    struct fabric_in *in = &fabric->in;
    while (in->got < end) {
        uint8_t *to = in->got < sizeof(in->answer) ? (uint8_t *)&in->answer + in->got
                                                   : in->payload + (in->got - sizeof(in->answer));
        ssize_t size = recv(fabric->socket, to, end - in->got, 0);
        if (size < 0 && errno == EINTR)
            continue;
        /* Closed: the helper has ended, and the loop says how. */
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            (void)uv_poll_stop(&fabric->poll);
        if (size <= 0)
            return false;
        in->got += (size_t)size;
    }
    return true;
}

void fabric_read(struct fabric *fabric)
{
    struct fabric_in *in = &fabric->in;
    if (in->got < sizeof(in->answer) &&
        (!read_until(fabric, sizeof(in->answer)) || !accept_answer(fabric)))
        return;
    if (read_until(fabric, sizeof(in->answer) + in->answer.payload))
        take_answer(fabric);
}
