/* SPDX-License-Identifier: Apache-2.0 */
/* f8bench on several machines: see bench_machines.h. */
#include "lib/bench_machines.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/proc.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

char machines_directory[] = "/tmp/f8-bench-addresses-XXXXXX";
static struct network *network; /* owned; NULL: hosts are addresses of the loopback */
struct program machines[MACHINES_MAX];
uint16_t machines_port;
bool machines_ipv6;

/* A port of the first host that is free. */
static uint16_t choose_port(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

void machines_make(void)
{
    memcpy(machines_directory + sizeof(machines_directory) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(machines_directory));
    machines_port = choose_port();
    memset(machines, 0, sizeof(machines));
}

void machines_make_network(void)
{
    struct bench_error error;
    machines_make();
    ck_assert_msg(network_new(MACHINES_MAX, &network, &error) == 0, "%s", error.text);
}

/* Those that a failed test left, which may be stopped. */
static void end_rest(void)
{
    for (int i = 0; i < MACHINES_MAX; i++)
        if (machines[i].pid > 0 && !machines[i].out) {
            kill(machines[i].pid, SIGKILL);
            waitpid(machines[i].pid, NULL, 0);
        }
}

/* Nothing may be left: what was killed has its daemon end a moment later. */
void machines_unmake(void)
{
    int ms = 0;
    end_rest();
    while (rmdir(machines_directory) != 0 && ms < PATIENCE_MS) {
        poll(NULL, 0, 5);
        ms += 5;
    }
    ck_assert_msg(ms < PATIENCE_MS, "something is left in %s", machines_directory);
    network_free(network);
    network = NULL;
}

static void address_of(uint32_t host, char *text, size_t size)
{
    if (network != NULL)
        network_address(host, machines_ipv6, text, size);
    else
        snprintf(text, size, "127.0.0.%u", host + 1);
}

void machines_expect_named(const char *text, uint32_t host, const char *what)
{
    char address[64];
    char said[200];
    address_of(host, address, sizeof(address));
    snprintf(said, sizeof(said), "host %u (%s)%s", host, address, what);
    ck_assert_msg(strstr(text, said) != NULL, "\"%s\" is not in: %s", said, text);
}

void machines_enter(uint32_t host)
{
    if (network != NULL)
        ck_assert_int_eq(network_enter(network, host), 0);
}

void machines_start(uint32_t host, uint32_t count, const char *format, ...)
{
    char flags[300];
    char list[200] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof(flags), format, args);
    va_end(args);
    for (uint32_t i = 0; i < count; i++) {
        char address[64];
        address_of(i, address, sizeof(address));
        size_t length = strlen(list);
        if (i == 0)
            snprintf(
                list, sizeof(list), machines_ipv6 ? "[%s]:%u" : "%s:%u", address, machines_port);
        else
            snprintf(list + length, sizeof(list) - length, ",%s", address);
    }
    machines_enter(host);
    program_start(&machines[host], F8_TEST_BENCH, machines_directory,
        "run --model tiny --hosts %s --host %u %s", list, host, flags);
}

void machines_expect(uint32_t host, int status)
{
    program_expect(&machines[host], status);
}

void machines_done(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        program_done(&machines[i]);
}

pid_t machines_await_child(uint32_t host, bool daemon)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
        pid_t children[16];
        uint32_t count = proc_children(machines[host].pid, children, 16);
        for (uint32_t i = count; i-- > 0;) {
            if (proc_runs(children[i], daemon ? test_daemon_program() : F8_TEST_BENCH))
                return children[i];
        }
        poll(NULL, 0, 5);
    }
    ck_abort_msg("host %u has not begun", host);
}

/* Whether the hosts can be network namespaces too. */
static bool can_wire(struct bench_error *error)
{
#ifdef F8_SANITIZED
    (void)bench_fail(error, "a sanitizer takes minutes over the same again");
    return false;
#else
    return network_check(error) == 0;
#endif
}

int machines_run(const char *name, void (*add)(TCase *cases), void (*more)(TCase *cases),
    void (*wired)(TCase *cases))
{
    struct bench_error error;
    Suite *suite = suite_create(name);
    TCase *loopback = tcase_create("at addresses of the loopback");
    tcase_add_checked_fixture(loopback, machines_make, machines_unmake);
    add(loopback);
    more(loopback);
    suite_add_tcase(suite, loopback);
    if (can_wire(&error)) {
        TCase *namespaces = tcase_create("at addresses in network namespaces");
        tcase_add_checked_fixture(namespaces, machines_make_network, machines_unmake);
        add(namespaces);
        wired(namespaces);
        suite_add_tcase(suite, namespaces);
    } else {
        printf("without network namespaces: %s\n", error.text);
    }
    return run_cases(suite);
}
