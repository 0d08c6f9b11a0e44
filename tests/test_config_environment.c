/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that begin as the daemon's settings do, and are none: what is misspelt is not passed
 * over, and what others set for themselves is left alone.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "status.h"
#include "tests/lib/suite.h"

static struct config config;
static struct reason reason;

/* Reads all settings with this variable set. */
static int read_with(const char *name, const char *value)
{
    char *argv[] = {(char *)"f8gatherd", (char *)"--socket", (char *)"/none/s", NULL};
    enum config_action action = CONFIG_RUN;
    reason.text[0] = '\0';
    ck_assert_int_eq(setenv(name, value, 1), 0);
    int status = config_parse(3, argv, &config, &action, &reason);
    ck_assert_int_eq(unsetenv(name), 0);
    return status;
}

static void is_refused(const char *name, const char *value, const char *sentence)
{
    ck_assert_int_eq(read_with(name, value), F8_EINVAL);
    ck_assert_msg(strstr(reason.text, sentence), "\"%s\" lacks \"%s\"", reason.text, sentence);
}

START_TEST(the_nearest_is_named)
{
    is_refused("F8GATHERD_LOGLEVEL", "debug",
        "environment F8GATHERD_LOGLEVEL: it is no setting of f8gatherd, the nearest is "
        "F8GATHERD_LOG_LEVEL: see --help");
    is_refused("F8GATHERD_log_level", "debug", "the nearest is F8GATHERD_");
    is_refused("F8GATHERD_CONFIGS", "/dev/null", "the nearest is F8GATHERD_CONFIG:");
    is_refused("F8GATHERD_", "1", "environment F8GATHERD_:");
}
END_TEST

START_TEST(empty_ones_are_refused_too)
{
    is_refused("F8GATHERD_SOCKETS", "", "the nearest is F8GATHERD_SOCKET:");
}
END_TEST

START_TEST(names_without_end_are_cut)
{
    char name[4000] = "F8GATHERD_";
    memset(name + strlen(name), 'X', sizeof(name) - strlen(name) - 1);
    is_refused(name, "1", "environment F8GATHERD_XXX");
}
END_TEST

START_TEST(known_ones_are_taken)
{
    ck_assert_msg(read_with("F8GATHERD_THREADS", "3") == F8_OK, "%s", reason.text);
    ck_assert_uint_eq(config.threads, 3);
    ck_assert_msg(read_with("F8GATHERD_NCCL", "libnccl.so.2") == F8_OK, "%s", reason.text);
}
END_TEST

/* In a cluster with services of such names every container has these. */
START_TEST(those_of_kubernetes_are_left_alone)
{
    static const char *const names[] = {"F8GATHERD_SERVICE_HOST", "F8GATHERD_SERVICE_PORT",
        "F8GATHERD_SERVICE_PORT_HTTP", "F8GATHERD_PORT", "F8GATHERD_PORT_9464_TCP_ADDR",
        "F8GATHERDS", "F8GATHERD_METRICS_SERVICE_HOST", "F8GATHERD_METRICS_SERVICE_PORT",
        "F8GATHERD_METRICS_SERVICE_PORT_HTTP", "F8GATHERD_METRICS_PORT",
        "F8GATHERD_METRICS_PORT_9464_TCP", "F8GATHERD_METRICS_PORT_9464_TCP_PORT"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_msg(read_with(names[i], "tcp://10.0.0.1:9464") == F8_OK, "%s", reason.text);
    ck_assert_msg(read_with("F8GATHERD_X_SERVICE_PORT", "9464") == F8_OK, "%s", reason.text);
}
END_TEST

/* What only looks like them is a mistake, as is a port where an address is to be set. */
START_TEST(what_is_nearly_of_kubernetes_is_refused)
{
    is_refused("F8GATHERD_PORTS", "tcp://10.0.0.1:9464", "environment F8GATHERD_PORTS:");
    is_refused("F8GATHERD_METRICS_PORT", "9464", "the nearest is F8GATHERD_METRICS");
    is_refused("F8GATHERD_SERVICE_HOSTS", "10.0.0.1", "environment F8GATHERD_SERVICE_HOSTS:");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("config_environment");
    tcase_add_test(cases, the_nearest_is_named);
    tcase_add_test(cases, empty_ones_are_refused_too);
    tcase_add_test(cases, names_without_end_are_cut);
    tcase_add_test(cases, known_ones_are_taken);
    tcase_add_test(cases, those_of_kubernetes_are_left_alone);
    tcase_add_test(cases, what_is_nearly_of_kubernetes_is_refused);
    return run_suite("config_environment", cases);
}
