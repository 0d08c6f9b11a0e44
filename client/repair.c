/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that connects again by itself (f8_connect_options.reconnect_ms): of the calls that meet
 * the daemon's end, one does what f8_reconnect does, once the others have returned from where they
 * were; those and all that begin meanwhile wait for it. Called as public calls begin and end
 * (client.c), on any thread. The lock is not held while anything is waited for but the turn.
 */
#include <poll.h>
#include <stdio.h>

#include "client/client_private.h"
#include "client/error.h"

/* Between two looks at whether the others have left. They do at once: their connection is lost. */
#define PAUSE_MS 1

/* F8_FOREVER: some years. */
#define FOREVER_MS (INT64_C(1) << 40)

void repair_init(struct repair *repair, int patience_ms)
{
    repair->patience_ms = patience_ms;
    pthread_cond_init(&repair->over, NULL);
    pthread_mutex_init(&repair->lock, NULL);
}

void repair_done(struct repair *repair)
{
    pthread_cond_destroy(&repair->over);
    pthread_mutex_destroy(&repair->lock);
}

void repair_note(struct f8_client *client, pid_t ended)
{
    struct repair *repair = &client->repair;
    pthread_mutex_lock(&repair->lock);
    repair->connection++;
    if (repair->state == REPAIR_FAILED)
        repair->state = REPAIR_NONE;
    (void)snprintf(repair->replaced, sizeof(repair->replaced),
        "f8gatherd (pid %d) at %s ended, and the one in its place (pid %d) was told all anew",
        (int)ended, channel_socket(client->channel), (int)channel_daemon_pid(client->channel));
    pthread_mutex_unlock(&repair->lock);
}

/* Makes this thread the only one who is inside, as soon as the others have left. */
static int seize(struct f8_client *client, int64_t deadline)
{
    int calls = 0;
    while (!atomic_compare_exchange_weak_explicit(
        &client->calls, &calls, CLIENT_REPAIRED, memory_order_acquire, memory_order_relaxed)) {
        if (reconnect_now_ms() >= deadline)
            return error_set(F8_ECONN,
                "the daemon has ended, and %s has not returned, so that no other could be "
                "connected to in %d ms",
                calls == CLIENT_SEIZED ? "another thread's f8_reconnect" : "another thread's call",
                client->repair.patience_ms);
        if (poll(NULL, 0, PAUSE_MS) < 0)
            return error_set(
                F8_EINTR, "the daemon has ended, and a signal came before another was looked for");
        calls = 0;
    }
    return F8_OK;
}

/* Replaces that connection, if f8_reconnect has not meanwhile. */
static int attempt(struct f8_client *client, uint64_t connection, int64_t deadline)
{
    int status = seize(client, deadline);
    if (status != F8_OK)
        return status;
    if (client->repair.connection == connection)
        status = reconnect_by_itself(client, deadline);
    client_release(client);
    return status;
}

/* Waits until the thread that repairs is done, and gives what came of it; lock held. */
static int await_other(struct repair *repair)
{
    const uint64_t attempt = repair->attempts;
    while (repair->attempts == attempt)
        pthread_cond_wait(&repair->over, &repair->lock);
    return repair->status == F8_OK ? F8_OK : error_set(repair->status, "%s", repair->text);
}

/* Has that connection replaced, by this thread or another; lock held. */
static int replace(struct f8_client *client, uint64_t connection)
{
    struct repair *repair = &client->repair;
    if (repair->state == REPAIR_UNDER_WAY)
        return await_other(repair);
    if (repair->connection != connection)
        return F8_OK;
    repair->state = REPAIR_UNDER_WAY;
    pthread_mutex_unlock(&repair->lock);
    int patience_ms = repair->patience_ms;
    int64_t deadline = reconnect_now_ms() + (patience_ms < 0 ? FOREVER_MS : patience_ms);
    int status = attempt(client, connection, deadline);
    pthread_mutex_lock(&repair->lock);
    repair->status = status;
    if (status != F8_OK)
        (void)snprintf(repair->text, sizeof(repair->text), "%s", error_text());
    repair->state = status == F8_OK ? REPAIR_NONE : REPAIR_FAILED;
    repair->attempts++;
    pthread_cond_broadcast(&repair->over);
    return status;
}

int repair_before(struct f8_client *client, bool again)
{
    struct repair *repair = &client->repair;
    int status = F8_OK;
    pthread_mutex_lock(&repair->lock);
    if (repair->state == REPAIR_UNDER_WAY)
        status = await_other(repair);
    else if (repair->state == REPAIR_FAILED && again)
        status = replace(client, repair->connection);
    pthread_mutex_unlock(&repair->lock);
    return again ? status : F8_OK;
}

int repair_after(struct f8_client *client, uint64_t connection)
{
    struct repair *repair = &client->repair;
    pthread_mutex_lock(&repair->lock);
    int status = replace(client, connection);
    if (status == F8_OK)
        status = error_set(F8_EBROKEN,
            "%s: nothing came of this call; f8_group_rejoin and f8_seal each group",
            repair->replaced);
    pthread_mutex_unlock(&repair->lock);
    return status;
}
