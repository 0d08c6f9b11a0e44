/* SPDX-License-Identifier: Apache-2.0 */
/* f8gatherd: reads its settings and serves. The only place that ends the process. */
#include <signal.h>
#include <stdlib.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"

/* Exit statuses as --help names them. */
#define EXIT_USAGE 2

static int run(int argc, char **argv)
{
    struct config config;
    struct reason reason;
    enum config_action action;
    if (config_parse(argc, argv, &config, &action, &reason) < 0) {
        log_error("%s", reason.text);
        return EXIT_USAGE;
    }
    if (action == CONFIG_EXIT)
        return EXIT_SUCCESS;
    log_set_level(config.log_level);
    (void)signal(SIGPIPE, SIG_IGN); /* the reader of the log may end before us */
    if (server_run(&config, argc, argv, &reason) < 0) {
        log_error("%s", reason.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);
    log_close(LOG_CLOSE_MS);
    return status;
}
