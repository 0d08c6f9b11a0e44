/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl: shows operators what f8gatherd is doing. main has the command line read, connects as
 * ADMIN, and runs one command. It never starts a daemon.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/options.h"
#include "client/error.h"

/* More than the daemon is patient with its disk: its answer is the better one. */
#define DISK_TIMEOUT_MS 30000

static int run(struct ctl *ctl, const struct command *command)
{
    int result, status = command->takes & CTL_ALONE ? F8_OK : ctl_connect(ctl);

    if (status == F8_EPERM) {
        char refusal[512];

        snprintf(refusal, sizeof(refusal), "%s", error_text());
        status = error_set(status, "%s: %s", command->name, refusal);
    }
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    result = command->run(ctl);
    channel_close(ctl->channel);
    return result;
}

int main(int argc, char **argv)
{
    struct ctl ctl = {.timeout_ms = 10000, .interval_ms = 1000, .uid = geteuid()};
    int result;
    const struct command *command = options_read(argc, argv, &ctl, &result);

    if (command == NULL) {
        return result;
    }
    if ((command->takes & CTL_AWAITS_DISK) && !ctl.timeout_given) {
        ctl.timeout_ms = DISK_TIMEOUT_MS;
    }
    result = run(&ctl, command);
    if (fflush(stdout) != 0 && result == CTL_OK) {
        fprintf(stderr, "f8ctl: standard output: %s\n", strerror(errno));
        return CTL_REFUSED;
    }
    return result;
}
