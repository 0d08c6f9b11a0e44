/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor --peer new on one host and --peer ID on another: the whole way of a group, through
 * both daemons. Called by doctor.c. Each host prints what it has seen itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/doctor.h"
#include "client/ctl/doctor_gather.h"
#include "client/ctl/fetch.h"
#include "client/error.h"

struct meeting {
    struct gather gather;
    uint8_t id[F8_UNIQUE_ID_SIZE];
    bool is_new;    /* this host is to make the id */
    char group[32]; /* its name */
};

static bool failed(struct doctor *doctor, const struct check *check)
{
    doctor_add(doctor, check, DOCTOR_FAILED, "%s", error_text());
    return false;
}

static bool check_daemon(struct doctor *doctor, const struct check *check)
{
    struct meeting *meeting = doctor->own;

    return gather_open(&meeting->gather, doctor) == F8_OK || failed(doctor, check);
}

/* Both hosts name the group alike, and meetings at one time differently: FNV-1a of the id. */
static void name_group(struct meeting *meeting)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof(meeting->id); i++) {
        hash = (hash ^ meeting->id[i]) * 1099511628211u;
    }
    snprintf(meeting->group, sizeof(meeting->group), "doctor-%016" PRIx64, hash);
}

/* The command for the other host; where JSON is printed, beside it. */
static void print_command(struct doctor *doctor, const struct meeting *meeting)
{
    FILE *to = doctor->ctl->json ? stderr : stdout;
    char digits[CTL_ID_DIGITS + 1];

    ctl_id_text(meeting->id, digits);
    fprintf(to, "on the other host: f8ctl doctor --peer %s\n", digits);
    fflush(to);
}

static bool check_id(struct doctor *doctor, const struct check *check)
{
    struct meeting *meeting = doctor->own;

    meeting->gather.rank = meeting->is_new ? 0 : 1;
    if (meeting->is_new) {
        if (f8_unique_id(meeting->gather.client, meeting->id) != F8_OK) {
            return failed(doctor, check);
        }
        print_command(doctor, meeting);
    }
    name_group(meeting);
    return true;
}

static bool check_meet(struct doctor *doctor, const struct check *check)
{
    struct meeting *meeting = doctor->own;
    double begin = doctor_clock(), seconds;
    struct finding *finding;

    if (gather_meet(&meeting->gather, meeting->group, meeting->id) != F8_OK) {
        return failed(doctor, check);
    }
    seconds = (doctor_clock() - begin) / 1000;
    finding = doctor_add(
        doctor, check, DOCTOR_OK, "after %.3f s, as rank %u of 2", seconds, meeting->gather.rank);
    finding->number = seconds;
    finding->unit = "s";
    return true;
}

/* "a (10.0.0.1:4711), b (10.0.0.2:36124, here)" */
static void list_hosts(const struct fetched *fetched, const char *group, char *list, size_t size)
{
    list[0] = '\0';
    for (size_t i = 0; i < fetched->num_rows; i++) {
        const F8__HostInfo *host = fetched->rows[i];
        size_t used = strlen(list);
        if (strcmp(host->group, group) == 0) {
            snprintf(list + used, size - used, "%s%s (%s%s)", used > 0 ? ", " : "", host->name,
                host->address, host->here ? ", here" : "");
        }
    }
}

/* Only operators may see this; whoever is none has met the other host all the same. */
static bool check_hosts(struct doctor *doctor, const struct check *check)
{
    const struct meeting *meeting = doctor->own;
    char list[DOCTOR_VALUE_SIZE];
    struct fetched fetched;
    int status = doctor_connect(doctor);

    if (status == F8_OK) {
        status = fetch(doctor->ctl, F8__VIEW__HOSTS, meeting->group, &fetched);
    }
    if (status != F8_OK) {
        doctor_add(doctor, check, DOCTOR_WARNING, "%s", error_text());
        return true;
    }
    list_hosts(&fetched, meeting->group, list, sizeof(list));
    fetch_done(&fetched);
    if (list[0] != '\0') {
        doctor_add(doctor, check, DOCTOR_OK, "%s", list);
    } else {
        doctor_add(doctor, check, DOCTOR_WARNING, "the daemon does not list those of group %s",
            meeting->group);
    }
    return true;
}

static bool check_small(struct doctor *doctor, const struct check *check)
{
    struct meeting *meeting = doctor->own;
    struct finding *finding;
    double us;

    if (gather_small(&meeting->gather, &us) != F8_OK) {
        return failed(doctor, check);
    }
    finding = doctor_add(
        doctor, check, DOCTOR_OK, "%.0f us for %d bytes from each (median)", us, GATHER_SMALL);
    finding->number = us;
    finding->unit = "us";
    return true;
}

static bool check_large(struct doctor *doctor, const struct check *check)
{
    struct meeting *meeting = doctor->own;
    struct finding *finding;
    double gb_s;

    if (gather_large(&meeting->gather, &gb_s) != F8_OK) {
        return failed(doctor, check);
    }
    finding = doctor_add(doctor, check, DOCTOR_OK,
        "%.3f GB/s to here for %zu MiB from each, both ways at once (median)", gb_s,
        GATHER_LARGE >> 20);
    finding->number = gb_s;
    finding->unit = "GB/s";
    gather_part(&meeting->gather);
    return true;
}

static const struct check checks[] = {
    {"daemon", "start f8gatherd here, or name its socket with --socket", check_daemon},
    {"unique id", "see --socket-ifname and --socket-family of f8gatherd, and ip addr", check_id},
    {"meeting",
        "run f8ctl doctor --peer new, which makes a new id, and on the other host, soon after, "
        "what "
        "it prints; f8ctl doctor --peer HOST tests the way alone",
        check_meet},
    {"hosts", "run it as root, as the daemon's user, or as one of its --admin-group", check_hosts},
    {"small gather", "see the logs of both daemons, and f8ctl doctor --peer HOST", check_small},
    {"large gather",
        "see the logs of both daemons, and the path MTU of f8ctl doctor --peer HOST: where few "
        "bytes pass and many do not, it is often wrong",
        check_large},
};

void doctor_meet(struct doctor *doctor, const uint8_t *id)
{
    struct meeting meeting = {.is_new = id == NULL};

    if (id != NULL) {
        memcpy(meeting.id, id, sizeof(meeting.id));
    }
    doctor->own = &meeting;
    doctor_run(doctor, checks, sizeof(checks) / sizeof(checks[0]));
    gather_close(&meeting.gather);
    doctor->own = NULL;
}
