/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl export and import: the scaling state of a group into a file and back, as the daemon has it
 * or as JSON. The daemon checks what its bytes mean; they come and go in sealed memfds. A file is
 * written whole or not at all. Called by main with a connected channel.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/confirm.h"
#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"
#include "client/ctl/print_json.h"
#include "client/ctl/print_table.h"
#include "client/ctl/state_doc.h"
#include "client/ctl/transfer_form.h"
#include "client/ctl/whole_file.h"
#include "client/error.h"

#define CHUNK 65536

int ctl_copy_all(int from, int to, const char *what, uint64_t *ret_size)
{
    static char buffer[CHUNK];
    uint64_t size = 0;

    for (;;) {
        ssize_t got = pread(from, buffer, sizeof(buffer), (off_t)size);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            *ret_size = size;
            return got == 0 ? F8_OK : error_set(F8_EIO, "%s: %s", what, strerror(errno));
        }
        for (ssize_t done = 0; done < got;) {
            ssize_t put = write(to, buffer + done, (size_t)(got - done));
            if (put < 0 && errno != EINTR) {
                return error_set(F8_EIO, "%s: %s", what, strerror(errno));
            }
            done += put > 0 ? put : 0;
        }
        size += (uint64_t)got;
    }
}

int ctl_ask(struct ctl *ctl, F8__Request *request, int memfd, struct channel_reply *ret_reply)
{
    uint64_t id;
    int status = channel_send(ctl->channel, request, memfd, &id);

    if (status == F8_OK) {
        status = channel_wait(ctl->channel, id, ctl->timeout_ms, ret_reply);
    }
    if (status == F8_EDEADLINE) {
        return error_set(status, "the daemon at %s did not answer within %d ms",
            channel_socket(ctl->channel), ctl->timeout_ms);
    }
    return status != F8_OK ? status : ret_reply->status;
}

/* What both commands say of what they did, as an object. */
static json_t *json_of_transfer(const struct ctl *ctl, uint64_t size, json_t *syncs)
{
    const char *const *arguments = ctl->arguments;

    return json_pack("{s:s, s:I, s:s, s:s, s:I, s:o}", "job", arguments[0], "uid",
        (json_int_t)ctl->uid, "group", arguments[1], "file", arguments[2], "bytes",
        (json_int_t)size, "syncs", syncs);
}

static void print_transfer(const struct ctl *ctl, const char *what, uint64_t size)
{
    const char *const *arguments = ctl->arguments;

    printf("%s %s: %" PRIu64 " bytes of group %s of job %s, uid %" PRIu32, what, arguments[2], size,
        arguments[1], arguments[0], ctl->uid);
}

/* ---- export ---- */

static int ask_export(struct ctl *ctl, struct channel_reply *ret_reply)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Export export = F8__EXPORT__INIT;
    struct channel_reply reply = {.fd = -1};
    struct stat stat;
    int status;

    export.job = (char *)ctl->arguments[0];
    export.uid = ctl->uid;
    export.group_name = (char *)ctl->arguments[1];
    request.body_case = F8__REQUEST__BODY_EXPORT;
    request.export = &export;
    status = ctl_ask(ctl, &request, -1, &reply);
    if (status == F8_OK &&
        (reply.body != F8__REPLY__BODY_EXPORT || reply.fd < 0 || fstat(reply.fd, &stat) != 0)) {
        status = error_set(F8_EPROTO, "the daemon answered an export without one");
    } else if (status == F8_OK && (uint64_t)stat.st_size != reply.first) {
        status = error_set(F8_EPROTO,
            "the daemon sent an export of %lld bytes, and says that it has %" PRIu64,
            (long long)stat.st_size, reply.first);
    }
    if (status != F8_OK && reply.fd >= 0) {
        close(reply.fd);
    }
    *ret_reply = reply;
    return status;
}

static int write_file(const struct ctl *ctl, int from, uint64_t *ret_size)
{
    struct whole_file file;
    int status = whole_file_open(&file, ctl->arguments[2], (ctl->given & CTL_TAKES_FORCE) != 0);

    if (status != F8_OK) {
        return status;
    }
    status = ctl_copy_all(from, fileno(file.stream), file.name, ret_size);
    return whole_file_close(&file, status);
}

static int report_export(struct ctl *ctl, uint64_t size, uint64_t syncs)
{
    if (ctl->json) {
        return json_print(
            ctl, "export", json_of_transfer(ctl, size, json_integer((json_int_t)syncs)));
    }
    print_transfer(ctl, "wrote", size);
    printf(", as of sync %" PRIu64 "\n", syncs);
    return CTL_OK;
}

int command_export(struct ctl *ctl)
{
    struct channel_reply reply;
    uint64_t size;
    bool piped = strcmp(ctl->arguments[2], "-") == 0;
    bool is_text = ctl->format != NULL && strcmp(ctl->format, "json") == 0;
    int status;

    if (piped && ctl->json) {
        fprintf(stderr, "f8ctl: export: --json and the state cannot both go to standard output\n");
        return CTL_USAGE;
    }
    if (piped && !is_text && !(ctl->given & CTL_TAKES_FORCE) && isatty(STDOUT_FILENO)) {
        fprintf(stderr, "f8ctl: export: standard output is a terminal, and the state is binary: "
                        "name a file, or take --format json, or --force\n");
        return CTL_USAGE;
    }
    status = ask_export(ctl, &reply);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (is_text) {
        status = transfer_to_json(&reply.fd);
    }
    if (status == F8_OK) {
        status = write_file(ctl, reply.fd, &size);
    }
    close(reply.fd);
    if (status != F8_OK || piped) {
        return status != F8_OK ? ctl_failed(status) : CTL_OK;
    }
    return report_export(ctl, size, reply.second);
}

/* ---- import ---- */

/* A state that was read from a file. */
struct taken {
    int memfd;     /* owned: sealed, in the binary form */
    uint64_t size; /* the file's */
    uint64_t syncs;
    bool has_syncs; /* else it is no state, which the daemon will say */
};

/* A pipe has no begin to come back to, nor a size, and may never end. */
static int check_file(int file, const char *name)
{
    struct stat stat;

    if (fstat(file, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        return error_set(F8_EIO, "%s is no regular file: name one that has the state", name);
    }
    if (stat.st_size > (off_t)STATE_DOC_MAX_SIZE) {
        return error_set(F8_ELIMIT, "%s has %lld bytes, a state has at most %zu", name,
            (long long)stat.st_size, STATE_DOC_MAX_SIZE);
    }
    return F8_OK;
}

/* The file's bytes as the daemon wants them: a memfd that nobody changes any more. */
static int take_file(int file, const char *name, struct taken *ret_taken)
{
    int memfd = memfd_create("f8ctl-import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct taken taken = {.size = 0};
    int status = memfd >= 0 ? check_file(file, name)
                            : error_set(F8_EIO, "no memory for %s: %s", name, strerror(errno));

    if (status == F8_OK) {
        status = ctl_copy_all(file, memfd, name, &taken.size);
    }
    if (status == F8_OK && taken.size == 0) {
        status = error_set(F8_EIO, "%s is empty: f8ctl export writes what this reads", name);
    }
    if (status == F8_OK) {
        status = transfer_from_json(&memfd, name);
    }
    if (status == F8_OK) {
        taken.has_syncs = transfer_syncs(memfd, name, &taken.syncs) == F8_OK;
    }
    if (status == F8_OK &&
        fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        status = error_set(F8_EIO, "no sealed memory for %s: %s", name, strerror(errno));
    }
    if (status == F8_OK) {
        taken.memfd = memfd;
        *ret_taken = taken;
    } else if (memfd >= 0) {
        close(memfd);
    }
    return status;
}

/* Without waiting for who would write to a FIFO. */
static int read_file(const char *name, struct taken *ret_taken)
{
    int file = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int status;

    if (file < 0) {
        return error_set(F8_EIO, "%s cannot be read: %s", name, strerror(errno));
    }
    status = take_file(file, name, ret_taken);
    close(file);
    return status;
}

/* A state that is stored already goes as this one comes: CTL_OK if there is none, or it may. */
static int confirm_replacement(struct ctl *ctl)
{
    struct channel_reply reply;

    if ((ctl->given & CTL_TAKES_YES) || ask_export(ctl, &reply) != F8_OK) {
        return CTL_OK; /* what is wrong with the daemon, the import says too */
    }
    close(reply.fd);
    return ctl_confirm(ctl,
        "replaces the state that is stored for group %s of job %s, uid %" PRIu32
        ", as of sync %" PRIu64,
        ctl->arguments[1], ctl->arguments[0], ctl->uid, reply.second);
}

/*
 * For how long the job's states are kept without ranks; 0: none waits for them, as they are not
 * kept, or a seal was quick and has continued them. False: it is not told.
 */
static bool ask_left(struct ctl *ctl, uint64_t *ret_left_ms)
{
    struct fetched fetched;

    if (fetch(ctl, F8__VIEW__JOBS, NULL, &fetched) != F8_OK) {
        return false;
    }
    *ret_left_ms = 0;
    for (size_t i = 0; i < fetched.num_rows; i++) {
        const F8__JobInfo *job = fetched.rows[i];
        if (job->uid == ctl->uid && strcmp(job->name, ctl->arguments[0]) == 0) {
            *ret_left_ms = job->left_ms;
        }
    }
    fetch_done(&fetched);
    return true;
}

/* Who imports into an empty job must know by when the run is to be there. */
static int report_import(struct ctl *ctl, const struct taken *taken)
{
    uint64_t left_ms = 0;
    bool told = ask_left(ctl, &left_ms);
    char left[TABLE_MAX_CELL];

    if (ctl->json) {
        json_t *object = json_of_transfer(ctl, taken->size,
            taken->has_syncs ? json_integer((json_int_t)taken->syncs) : json_null());
        json_object_set_new(
            object, "left_ms", told ? json_integer((json_int_t)left_ms) : json_null());
        return json_print(ctl, "import", object);
    }
    print_transfer(ctl, "stored", taken->size);
    if (taken->has_syncs) {
        printf(", as of sync %" PRIu64, taken->syncs);
    }
    table_duration(left, left_ms);
    if (told && left_ms > 0) {
        printf(", kept for %s unless a seal continues it", left);
    } else if (told) {
        printf(", and either continued by a seal already or not kept (--linger 0)");
    }
    printf("\n");
    return CTL_OK;
}

int command_import(struct ctl *ctl)
{
    F8__Request request = F8__REQUEST__INIT;
    F8__Import import = F8__IMPORT__INIT;
    struct channel_reply reply = {.fd = -1};
    struct taken taken;
    int status = read_file(ctl->arguments[2], &taken);
    int result;

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = confirm_replacement(ctl);
    if (result != CTL_OK) {
        close(taken.memfd);
        return result;
    }
    import.job = (char *)ctl->arguments[0];
    import.uid = ctl->uid;
    import.group_name = (char *)ctl->arguments[1];
    request.body_case = F8__REQUEST__BODY_IMPORT;
    request.import = &import;
    status = ctl_ask(ctl, &request, taken.memfd, &reply);
    close(taken.memfd);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    return report_import(ctl, &taken);
}
