/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling states as they come and go for checkpoints: see session.h. What comes in is copied out
 * of the peer's memory before it is looked at.
 */
#include "daemon/session_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#define WHAT_TEXT 300 /* "the import of group dp" */

static int read_all(int fd, uint8_t *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, bytes + done, size - done, (off_t)done);
        if (n <= 0)
            return F8_EREGION;
        done += (size_t)n;
    }
    return F8_OK;
}

static int check_size(const struct session *session, uid_t uid, const char *what, uint64_t size,
    struct reason *reason)
{
    if (size > STATE_FORM_MAX_SIZE)
        return reason_set(reason, F8_ELIMIT, "%s has %" PRIu64 " bytes, the limit is %" PRIu64,
            what, size, (uint64_t)STATE_FORM_MAX_SIZE);
    return registry_check_room(session->context->registry, uid, what, size, reason);
}

/* Copies the one descriptor's bytes; *ret_bytes is the caller's. */
static int copy_in(const struct session *session, const struct incoming *incoming, uid_t uid,
    const char *what, uint8_t **ret_bytes, size_t *ret_size, struct reason *reason)
{
    uint64_t size;
    if (incoming->num_fds != 1)
        return reason_set(reason, F8_EREGION, "%s came with %u descriptors, it takes exactly one",
            what, incoming->num_fds);
    int status = region_check(incoming->fds[0], &size, reason);
    if (status == F8_OK)
        status = check_size(session, uid, what, size, reason);
    if (status < 0)
        return status;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return reason_set(reason, F8_ENOMEM, "out of memory for %s", what);
    if (read_all(incoming->fds[0], bytes, size) < 0) {
        free(bytes);
        return reason_set(reason, F8_EREGION, "%s cannot be read: %s", what, strerror(errno));
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return F8_OK;
}

static bool has_import(const struct group *group)
{
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && group->members[r]->seal.import)
            return true;
    return false;
}

int session_read_import(struct session *session, const struct incoming *incoming,
    const struct member *member, struct member_seal *options, struct reason *reason)
{
    char what[WHAT_TEXT];
    uint8_t *bytes;
    (void)snprintf(what, sizeof(what), "the import of group %s", member->group->name);
    int status =
        copy_in(session, incoming, session->peer.uid, what, &bytes, &options->import_size, reason);
    if (status < 0)
        return status;
    options->import_crc = (uint32_t)crc32_z(0, bytes, options->import_size);
    /* All ranks' must be the same, so one of them is enough on each host. */
    if (has_import(member->group))
        free(bytes);
    else
        options->import = bytes;
    return F8_OK;
}

int session_sealed_copy(const char *name, const void *bytes, size_t size)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t done = 0;
    while (fd >= 0 && done < size) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (fd >= 0 &&
        (done < size ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Without the token: a checkpoint may go far. */
static int export_form(
    const struct state *state, struct state_form *ret_form, struct reason *reason)
{
    const struct state_head *head = state_head(state);
    struct state_owner owner = head->owner;
    owner.token = NULL;
    owner.token_size = 0;
    owner.any_token = true;
    return state_form_copy(&owner, head, state_values(state), ret_form, reason);
}

static int find_state(const struct session *session, uid_t uid, const char *job, const char *group,
    const struct state **ret_state, struct reason *reason)
{
    *ret_state = state_find(session->context->collective.states, uid, job, group);
    if (*ret_state)
        return F8_OK;
    return reason_set(reason, F8_ENOENT,
        "nothing is stored for job %.120s, group %.120s of uid %u: it has no delayed weights, or "
        "was not sealed yet; f8ctl groups lists the groups that there are",
        job, group, (unsigned)uid);
}

static int find_exported(const struct session *session, const F8__Export *message,
    const struct state **ret_state, struct reason *reason)
{
    struct member *member;
    if (session->admin)
        return find_state(
            session, message->uid, message->job, message->group_name, ret_state, reason);
    int status = session_member(session, message->group, &member, reason);
    const struct job *job = session->job;
    if (status == F8_OK)
        status = find_state(session, job->uid, job->name, member->group->name, ret_state, reason);
    if (status == F8_OK && !state_admits(*ret_state, job->token, job->token_size))
        return reason_set(reason, F8_EPERM,
            "the stored state of group %s is of a run with another token", member->group->name);
    return status;
}

int session_export(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const struct state *state;
    struct state_form form;
    int status = find_exported(session, incoming->request->export, &state, &answer->reason);
    if (status == F8_OK)
        status = export_form(state, &form, &answer->reason);
    if (status < 0)
        return status;
    F8__ExportReply *reply = &answer->body.export;
    f8__export_reply__init(reply);
    reply->size = form.size;
    reply->syncs = state_values_syncs(form.bytes + form.head.size);
    answer->own_fd = session_sealed_copy("f8gather-state", form.bytes, form.size);
    state_form_done(&form);
    if (answer->own_fd < 0)
        return reason_set(
            &answer->reason, F8_ENOMEM, "cannot make a memfd for the export: %s", strerror(errno));
    answer->fd = answer->own_fd;
    answer->reply.body_case = F8__REPLY__BODY_EXPORT;
    answer->reply.export = reply;
    return F8_OK;
}

static int check_names(const F8__Import *message, struct reason *reason)
{
    size_t job = strlen(message->job), group = strlen(message->group_name);
    if (job < 1 || job > F8_PROTO_MAX_NAME || group < 1 || group > F8_PROTO_MAX_NAME)
        return reason_set(reason, F8_EINVAL,
            "the names of the job and the group have %zu and %zu bytes, allowed are 1 to %d", job,
            group, F8_PROTO_MAX_NAME);
    return F8_OK;
}

/* The group's state is its own as long as anybody is in it. */
static int check_absent(
    const struct session *session, const F8__Import *message, struct reason *reason)
{
    const struct job *job = registry_jobs(session->context->registry);
    while (job && !(job->uid == message->uid && strcmp(job->name, message->job) == 0))
        job = job->next;
    if (!job || !registry_find_group(job, message->group_name))
        return F8_OK;
    return reason_set(reason, F8_EBUSY,
        "group %.120s of job %.120s has members: import before they join, or in their seal",
        message->group_name, message->job);
}

/* Whoever may continue the state that is there may continue what takes its place. */
static int store_import(struct session *session, const F8__Import *message,
    const struct state_head *head, const uint8_t *values, struct reason *reason)
{
    struct state_store *store = session->context->collective.states;
    struct state *state = state_find(store, message->uid, message->job, message->group_name);
    struct state_owner owner = {.any_token = true};
    if (state)
        owner = state_head(state)->owner;
    owner.uid = message->uid;
    owner.job = message->job;
    owner.group = message->group_name;
    struct state_form form;
    int status = state_form_copy(&owner, head, values, &form, reason);
    if (status < 0)
        return status;
    status = registry_check_room(
        session->context->registry, message->uid, "the import", state_stored_size(&form), reason);
    if (status == F8_OK)
        status = state_put(store, &form, &state, reason);
    if (status == F8_OK)
        state_replaced(state);
    state_form_done(&form);
    return status;
}

int session_import(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Import *message = incoming->request->import;
    struct reason *reason = &answer->reason;
    char what[WHAT_TEXT];
    uint8_t *bytes = NULL;
    size_t size;
    struct state_head head;
    int status = check_names(message, reason);
    if (status == F8_OK)
        status = check_absent(session, message, reason);
    if (status < 0)
        return status;
    (void)snprintf(what, sizeof(what), "the import of group %s", message->group_name);
    status = copy_in(session, incoming, message->uid, what, &bytes, &size, reason);
    if (status == F8_OK)
        status = state_import_check(bytes, size, what, &head, reason);
    if (status == F8_OK)
        status = store_import(session, message, &head, bytes + head.size, reason);
    free(bytes);
    return status < 0 ? status : session_settle(session, incoming->request->id, answer);
}
