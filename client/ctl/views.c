/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of f8ctl: each fetches a view and prints it as a table or as JSON. Called by main
 * with a connected channel; a command gives the exit status.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/columns.h"
#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"
#include "client/ctl/print_json.h"
#include "client/ctl/sort.h"
#include "client/error.h"

int ctl_connect(struct ctl *ctl)
{
    struct channel_options options = {
        .socket = ctl->socket, .role = F8__ROLE__ADMIN, .timeout_ms = ctl->timeout_ms};

    return ctl->channel != NULL ? F8_OK : channel_open(&options, &ctl->channel);
}

int ctl_failed(int status)
{
    fprintf(stderr, "f8ctl: %s\n", error_text());
    switch (status) {
    case F8_ENODAEMON:
    case F8_ECONN:
    case F8_EDEADLINE:
        return CTL_NO_DAEMON;
    default:
        return CTL_REFUSED;
    }
}

/* A view that is a list. */
struct list {
    F8__View view;
    const char *key; /* in JSON */
    const struct columns *columns;
    json_t *(*object_of)(const void *row);
};

static int print_rows(struct ctl *ctl, const struct list *list, struct fetched *fetched)
{
    size_t num_rows = fetched->num_rows;
    int status = F8_OK;

    if (ctl->sort_column != NULL) {
        status = sort_rows(ctl->sort_column, ctl->descending, fetched->rows, num_rows);
    }
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->top > 0 && ctl->top < num_rows) {
        num_rows = ctl->top;
    }
    if (ctl->json) {
        return json_print_rows(ctl, list->key, list->object_of, fetched->rows, num_rows);
    }
    table_print(list->columns->columns, list->columns->count, fetched->rows, num_rows);
    return CTL_OK;
}

static int print_list(struct ctl *ctl, const struct list *list)
{
    struct fetched fetched;
    int result;
    int status = fetch(ctl, list->view, NULL, &fetched);

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = print_rows(ctl, list, &fetched);
    fetch_done(&fetched);
    return result;
}

int command_jobs(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__JOBS, "jobs", &columns_jobs, json_of_job};
    return print_list(ctl, &list);
}

int command_groups(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__GROUPS, "groups", &columns_groups, json_of_group};
    return print_list(ctl, &list);
}

int command_weights(struct ctl *ctl)
{
    static const struct list list = {
        F8__VIEW__WEIGHTS, "weights", &columns_weights, json_of_weight};
    return print_list(ctl, &list);
}

int command_scales(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__WEIGHTS, "scales", &columns_scales, json_of_weight};
    return print_list(ctl, &list);
}

int command_amax(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__AMAX, "amax", &columns_amax, json_of_amax};
    return print_list(ctl, &list);
}

int command_buckets(struct ctl *ctl)
{
    static const struct list list = {
        F8__VIEW__BUCKETS, "buckets", &columns_buckets, json_of_bucket};
    return print_list(ctl, &list);
}

int command_rounds(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__ROUNDS, "rounds", &columns_rounds, json_of_round};
    return print_list(ctl, &list);
}

int command_hosts(struct ctl *ctl)
{
    static const struct list list = {F8__VIEW__HOSTS, "hosts", &columns_hosts, json_of_host};
    return print_list(ctl, &list);
}

static int print_devices(const F8__StatusInfo *status)
{
    struct device_row *devices = calloc(status->n_devices + 1, sizeof(*devices));
    const void **rows = calloc(status->n_devices + 1, sizeof(*rows));

    for (size_t d = 0; d < status->n_devices && devices != NULL && rows != NULL; d++) {
        devices[d] = (struct device_row){.number = (uint32_t)d, .device = status->devices[d]};
        rows[d] = &devices[d];
    }
    if (devices != NULL && rows != NULL && status->n_devices > 0) {
        printf("\n");
        table_print(columns_devices.columns, columns_devices.count, rows, status->n_devices);
    }
    free(rows);
    free(devices);
    return devices != NULL && rows != NULL
               ? CTL_OK
               : ctl_failed(error_set(F8_ENOMEM, "no memory for a list of devices"));
}

int command_status(struct ctl *ctl)
{
    struct fetched fetched;
    int result = CTL_OK;
    int status = fetch(ctl, F8__VIEW__STATUS, NULL, &fetched);

    if (status == F8_OK && fetched.num_rows != 1) {
        fetch_done(&fetched);
        status = error_set(F8_EPROTO, "the daemon told no status");
    }
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->json) {
        result = json_print(ctl, "status", json_of_status(fetched.rows[0]));
    } else {
        table_print_record(columns_status.columns, columns_status.count, fetched.rows[0]);
        result = print_devices(fetched.rows[0]);
    }
    fetch_done(&fetched);
    return result;
}

char *ctl_escaped(const char *name)
{
    char *glob = malloc(2 * strlen(name) + 1);
    char *to = glob;

    for (; glob != NULL && *name != '\0'; name++) {
        if (strchr("*?[]\\", *name) != NULL) {
            *to++ = '\\';
        }
        *to++ = *name;
    }
    if (glob != NULL) {
        *to = '\0';
    }
    return glob;
}

static int show(struct ctl *ctl, const struct fetched *fetched)
{
    if (fetched->num_rows == 0) {
        fprintf(stderr, "f8ctl: no weight is called %s%s%s at %s; f8ctl weights lists them\n",
            ctl->arguments[0], ctl->job != NULL ? " in a job like " : "",
            ctl->job != NULL ? ctl->job : "", channel_socket(ctl->channel));
        return CTL_REFUSED;
    }
    if (ctl->json) {
        return json_print_rows(ctl, "weights", json_of_amax, fetched->rows, fetched->num_rows);
    }
    for (size_t i = 0; i < fetched->num_rows; i++) {
        printf("%s", i > 0 ? "\n" : "");
        table_print_record(columns_show.columns, columns_show.count, fetched->rows[i]);
    }
    return CTL_OK;
}

/* One weight may be there in several jobs. */
int command_show(struct ctl *ctl)
{
    char *glob = ctl_escaped(ctl->arguments[0]);
    struct fetched fetched;
    int result;
    int status = glob != NULL ? fetch(ctl, F8__VIEW__AMAX, glob, &fetched)
                              : error_set(F8_ENOMEM, "no memory for a name");

    free(glob);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = show(ctl, &fetched);
    fetch_done(&fetched);
    return result;
}

int command_ping(struct ctl *ctl)
{
    uint64_t uptime_ms = 0;
    double seconds = 0;
    char uptime[TABLE_MAX_CELL];
    int status = fetch_ping(ctl, &uptime_ms, &seconds);

    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (ctl->json) {
        return json_print(ctl, "ping",
            json_pack(
                "{s:f, s:I}", "round_trip_us", seconds * 1e6, "uptime_ms", (json_int_t)uptime_ms));
    }
    table_duration(uptime, uptime_ms);
    printf("f8gatherd (pid %d) at %s answered in %.0f us; up for %s\n",
        (int)channel_daemon_pid(ctl->channel), channel_socket(ctl->channel), seconds * 1e6, uptime);
    return CTL_OK;
}

static json_t *capabilities_json(const struct ctl *ctl)
{
    json_t *list = json_array();
    for (int c = 0; ctl->channel != NULL && c < F8_CAPABILITY_COUNT; c++)
        if (channel_can(ctl->channel, (enum f8_capability)c))
            json_array_append_new(list, json_string(f8_proto_capabilities[c]));
    return list;
}

static int print_version_json(struct ctl *ctl)
{
    const char *daemon = ctl->channel != NULL ? channel_daemon_version(ctl->channel) : NULL;

    return json_print(ctl, "version",
        json_pack("{s:s, s:s?, s:i, s:i, s:o}", "f8ctl", F8_VERSION, "f8gatherd", daemon,
            "protocol_major", F8_PROTO_MAJOR, "protocol_minor", F8_PROTO_MINOR, "capabilities",
            capabilities_json(ctl)));
}

static void print_daemon_version(const struct ctl *ctl)
{
    printf("f8gatherd %s (pid %d) at %s\nit can:", channel_daemon_version(ctl->channel),
        (int)channel_daemon_pid(ctl->channel), channel_socket(ctl->channel));
    for (int c = 0; c < F8_CAPABILITY_COUNT; c++)
        if (channel_can(ctl->channel, (enum f8_capability)c))
            printf(" %s", f8_proto_capabilities[c]);
    printf("\n");
}

/* Its own version is known without a daemon too. */
int command_version(struct ctl *ctl)
{
    int status = ctl_connect(ctl), result = CTL_OK;

    if (ctl->json) {
        result = print_version_json(ctl);
    } else {
        printf("f8ctl %s, protocol %d.%d\n", F8_VERSION, F8_PROTO_MAJOR, F8_PROTO_MINOR);
    }
    fflush(stdout);
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    if (!ctl->json) {
        print_daemon_version(ctl);
    }
    return result;
}
