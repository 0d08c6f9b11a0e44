/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling state of delayed weights as the trainer deals with it: where a seal is to take it
 * from, how many syncs it has seen, and its export. What the bytes mean, the daemon knows. Any
 * thread; bytes come and go in memfds, of any size.
 */
#include "client/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "client/map.h"

/* An older daemon would pass over what it does not know, and begin afresh. */
static int check_capability(const struct f8_group *group, const char *call)
{
    const struct channel *channel = group->client->channel;
    if (channel_can(channel, F8_CAPABILITY_STATE))
        return F8_OK;
    return error_set(F8_EVERSION, "%s of group %s needs %s, which f8gatherd %s at %s lacks", call,
        group->name, f8_proto_capabilities[F8_CAPABILITY_STATE], channel_daemon_version(channel),
        channel_socket(channel));
}

int state_check(const struct f8_group *group, const struct f8_seal_options *options)
{
    bool importing = options->state == F8_STATE_IMPORT;
    if (options->state != F8_STATE_FRESH && options->state != F8_STATE_CONTINUE && !importing)
        return error_set(F8_EINVAL, "f8_seal: there is no state %d", options->state);
    if (options->state != F8_STATE_CONTINUE && options->syncs != 0)
        return error_set(F8_EINVAL,
            "f8_seal: syncs is %llu, which only F8_STATE_CONTINUE uses; give 0",
            (unsigned long long)options->syncs);
    if (importing && (!options->import || options->import_size == 0))
        return error_set(F8_EINVAL,
            "f8_seal: F8_STATE_IMPORT without bytes: set import and import_size to what f8_export "
            "gave");
    if (!importing && (options->import || options->import_size > 0))
        return error_set(F8_EINVAL,
            "f8_seal: import_size is %zu, but only F8_STATE_IMPORT imports: set state",
            options->import_size);
    return options->state == F8_STATE_FRESH ? F8_OK
                                            : check_capability(group, "f8_seal with a state");
}

static int write_whole(int memfd, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = pwrite(memfd, bytes + done, size - done, (off_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_set(
                F8_EIO, "an import of %zu bytes cannot be copied: %s", size, strerror(errno));
        done += (size_t)written;
    }
    return F8_OK;
}

int state_import(const struct f8_seal_options *options, int *ret_memfd)
{
    *ret_memfd = -1;
    if (options->state != F8_STATE_IMPORT)
        return F8_OK;
    int memfd = -1;
    int status = map_create("import", options->import_size, &memfd);
    if (status != F8_OK)
        return status;
    status = write_whole(memfd, options->import, options->import_size);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    if (status == F8_OK && fcntl(memfd, F_ADD_SEALS, seals) != 0)
        status = error_set(F8_EIO, "an import cannot be sealed: %s", strerror(errno));
    if (status != F8_OK)
        close(memfd);
    else
        *ret_memfd = memfd;
    return status;
}

static int read_syncs(struct f8_group *group, uint64_t *ret_syncs)
{
    int status = group_enter_sealed(group);
    if (status != F8_OK)
        return status;
    if (ret_syncs)
        *ret_syncs = group->syncs;
    else
        status = error_set(F8_EINVAL, "f8_syncs: ret_syncs must not be NULL");
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_syncs(struct f8_group *group, uint64_t *ret_syncs)
{
    GROUP_CALL_LOCAL(group, read_syncs(group, ret_syncs));
}

static int read_whole(int memfd, char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(memfd, bytes + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(F8_EIO, "an export ends after %zu of %zu bytes: %s", done, size,
                got < 0 ? strerror(errno) : "it was cut off");
        done += (size_t)got;
    }
    return F8_OK;
}

/* Copies what came with the reply into memory that free() ends. */
static int take_export(
    const struct f8_group *group, const struct channel_reply *reply, void **ret_data)
{
    struct stat stat;
    if (reply->body != F8__REPLY__BODY_EXPORT || reply->fd < 0 || fstat(reply->fd, &stat) != 0)
        return error_set(
            F8_EPROTO, "the daemon answered an export of group %s without one", group->name);
    if (reply->first == 0 || (uint64_t)stat.st_size != reply->first)
        return error_set(F8_EPROTO,
            "the daemon sent an export of group %s of %lld bytes, and says that it has %llu",
            group->name, (long long)stat.st_size, (unsigned long long)reply->first);
    char *data = malloc(reply->first);
    if (!data)
        return error_set(
            F8_ENOMEM, "no memory for an export of %llu bytes", (unsigned long long)reply->first);
    int status = read_whole(reply->fd, data, reply->first);
    if (status != F8_OK)
        free(data);
    else
        *ret_data = data;
    return status;
}

static int export_state(struct f8_group *group, void **ret_data, size_t *ret_size)
{
    int status = check_capability(group, "f8_export");
    if (status != F8_OK)
        return status;
    if (!ret_data || !ret_size)
        return error_set(F8_EINVAL, "f8_export: ret_data and ret_size must not be NULL");
    F8__Export export = F8__EXPORT__INIT;
    export.group = group->id;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_EXPORT;
    request.export = &export;
    struct channel_reply reply = {.fd = -1};
    status = channel_call(group->client->channel, &request, -1, &reply);
    if (status != F8_OK)
        return status;
    status = take_export(group, &reply, ret_data);
    if (status == F8_OK)
        *ret_size = reply.first;
    if (reply.fd >= 0)
        close(reply.fd);
    return status;
}

int f8_export(struct f8_group *group, void **ret_data, size_t *ret_size)
{
    GROUP_CALL(group, export_state(group, ret_data, ret_size));
}
