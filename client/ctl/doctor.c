/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor: runs checks and prints what they find, one line each or one JSON object. Called by
 * main, without a connection: that there is no daemon is a finding.
 */
#include "client/ctl/doctor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/print_json.h"

/* Without --timeout: somebody has to type a command on the other host. */
#define MEET_TIMEOUT_MS 300000

/* What checks keep --timeout by themselves may be late with, in seconds. */
#define GRACE_S 5

static const char *const result_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_WARNING] = "warning", [DOCTOR_FAILED] = "FAILED"};

/* ---- the time limit ---- */

/* The check that runs, for the signal handler. */
static const char *volatile under_way = "";

double doctor_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

int doctor_left(const struct doctor *doctor)
{
    int64_t left = doctor->deadline_ms - (int64_t)doctor_clock();

    return left > 0 ? (int)left : 0;
}

/* A resolver or a daemon that never answers cannot be told to return. */
static void give_up(int number)
{
    static const char before[] = "f8ctl: doctor: gave up at --timeout; what did not end: ";
    const char *what = under_way;

    (void)number;
    (void)!write(STDERR_FILENO, before, sizeof(before) - 1);
    (void)!write(STDERR_FILENO, what, strlen(what));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(CTL_REFUSED);
}

static void limit_time(struct doctor *doctor)
{
    struct sigaction action = {.sa_handler = give_up};

    doctor->deadline_ms = (int64_t)doctor_clock() + doctor->ctl->timeout_ms;
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)(doctor->ctl->timeout_ms / 1000) + GRACE_S);
}

/* ---- findings ---- */

struct finding *doctor_add(struct doctor *doctor, const struct check *check,
    enum doctor_result result, const char *format, ...)
{
    struct finding *finding;
    va_list arguments;

    if (doctor->count == DOCTOR_MAX_FINDINGS) {
        doctor->count--;
    }
    finding = &doctor->findings[doctor->count++];
    *finding = (struct finding){.check = check, .result = result};
    snprintf(finding->of, sizeof(finding->of), "%s", doctor->about);
    snprintf(finding->remedy, sizeof(finding->remedy), "%s", check->remedy);
    va_start(arguments, format);
    vsnprintf(finding->value, sizeof(finding->value), format, arguments);
    va_end(arguments);
    return finding;
}

void doctor_remedy(struct finding *finding, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(finding->remedy, sizeof(finding->remedy), format, arguments);
    va_end(arguments);
}

static void print_finding(const struct finding *finding)
{
    bool of = finding->of[0] != '\0', ok = finding->result == DOCTOR_OK;

    printf("%-8s %s%s%s: %s%s%s\n", result_names[finding->result], finding->check->what,
        of ? " to " : "", finding->of, finding->value, ok ? "" : "; ", ok ? "" : finding->remedy);
}

void doctor_print(struct doctor *doctor)
{
    if (doctor->ctl->json || doctor->hold) {
        return;
    }
    for (; doctor->printed < doctor->count; doctor->printed++) {
        print_finding(&doctor->findings[doctor->printed]);
    }
    fflush(stdout);
}

static json_t *json_of_finding(const struct finding *finding)
{
    bool ok = finding->result == DOCTOR_OK, of = finding->of[0] != '\0';
    json_t *object = json_pack("{s:s, s:s, s:s?, s:s, s:s?}", "result",
        ok ? "ok" : result_names[finding->result], "check", finding->check->what, "address",
        of ? finding->of : NULL, "value", finding->value, "remedy", ok ? NULL : finding->remedy);

    if (object != NULL) {
        json_object_set_new(
            object, "number", finding->unit != NULL ? json_real(finding->number) : json_null());
        json_object_set_new(
            object, "unit", finding->unit != NULL ? json_string(finding->unit) : json_null());
    }
    return object;
}

static int print_json(struct doctor *doctor)
{
    json_t *list = json_array();

    for (size_t i = 0; i < doctor->count; i++) {
        json_t *object = json_of_finding(&doctor->findings[i]);
        json_array_append_new(list, object != NULL ? object : json_null());
    }
    return json_print(doctor->ctl, "findings", list);
}

/* ---- running ---- */

void doctor_run(struct doctor *doctor, const struct check *checks, size_t count)
{
    bool go_on = true;

    for (size_t i = 0; i < count && go_on; i++) {
        under_way = checks[i].what;
        go_on = checks[i].run(doctor, &checks[i]);
        doctor_print(doctor);
    }
}

int doctor_connect(struct doctor *doctor)
{
    struct ctl *ctl = doctor->ctl;
    struct channel_options options = {.socket = ctl->socket, .role = F8__ROLE__ADMIN};

    return ctl->channel != NULL ? F8_OK : channel_open(&options, &ctl->channel);
}

static int conclude(struct doctor *doctor)
{
    int result = CTL_OK;

    if (doctor->ctl->json) {
        result = print_json(doctor);
    }
    for (size_t i = 0; i < doctor->count; i++) {
        if (doctor->findings[i].result == DOCTOR_FAILED) {
            result = CTL_REFUSED;
        }
    }
    return result;
}

/* No label of a host's name is longer than 63 characters. */
static bool is_id(const char *peer)
{
    return strlen(peer) > 63 && strpbrk(peer, ".:") == NULL;
}

/* `id` is what the other host was given, if it was. */
static void examine(struct doctor *doctor, bool meets, const uint8_t *id)
{
    doctor->about = "";
    limit_time(doctor);
    if (doctor->ctl->peer == NULL) {
        doctor_host(doctor);
    } else if (meets) {
        doctor_meet(doctor, id);
    } else {
        doctor_path(doctor);
    }
}

int command_doctor(struct ctl *ctl)
{
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    struct doctor *doctor;
    bool is_new = ctl->peer != NULL && strcmp(ctl->peer, "new") == 0;
    bool meets = is_new || (ctl->peer != NULL && is_id(ctl->peer));
    int result;

    if (ctl->peer != NULL && ctl->peer[0] == '\0') {
        fprintf(stderr, "f8ctl: doctor: --peer is empty: give the other host's name or address; or "
                        "new, and there the id that it prints\n");
        return CTL_USAGE;
    }
    if (meets && !is_new && ctl_id_parse(ctl->peer, id) != 0) {
        return CTL_USAGE;
    }
    doctor = calloc(1, sizeof(*doctor));
    if (doctor == NULL) {
        fprintf(stderr, "f8ctl: no memory for the findings of doctor\n");
        return CTL_REFUSED;
    }
    if (meets && !ctl->timeout_given) {
        ctl->timeout_ms = MEET_TIMEOUT_MS;
    }
    doctor->ctl = ctl;
    examine(doctor, meets, is_new ? NULL : id);
    result = conclude(doctor);
    free(doctor);
    return result;
}
