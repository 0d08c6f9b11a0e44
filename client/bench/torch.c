/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The python3 beside a rank: a program of a few lines, told by lines on its standard input and
 * answering with lines on its standard output.
 */
#include "torch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long python and torch may take to load on a busy machine, and a gather. */
#define PATIENCE_MS 300000

struct torch {
    pid_t pid;
    int to_fd, from_fd; /* owned: its standard input and output */
};

static const char program[] =
    "import sys\n"
    "def main(rank, world, master, size):\n"
    "    import torch, torch.distributed as dist\n"
    "    dist.init_process_group('gloo', init_method=master, rank=rank, world_size=world)\n"
    "    part = torch.full((size,), rank % 251, dtype=torch.uint8)\n"
    "    parts = [torch.zeros(size, dtype=torch.uint8) for _ in range(world)]\n"
    "    print('ready', flush=True)\n"
    "    while sys.stdin.readline():\n"
    "        dist.all_gather(parts, part)\n"
    "        print('ready', flush=True)\n"
    "try:\n"
    "    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))\n"
    "except Exception as error:\n"
    "    print(' '.join(str(error).split()), flush=True)\n";

int torch_choose_port(struct sockaddr_storage *address)
{
    struct sockaddr_storage bound = *address;
    socklen_t size = sizeof(bound);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = -1;

    /* The port lies alike in both kinds of addresses. */
    ((struct sockaddr_in *)(void *)&bound)->sin_port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&bound, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&bound, &size) == 0) {
        *address = bound;
        result = 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

/* "tcp://10.48.0.1:4711" */
static int name_master(const struct sockaddr_storage *master, char *name, size_t size)
{
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    bool is_v6 = master->ss_family == AF_INET6;

    if (getnameinfo((const struct sockaddr *)master, sizeof(*master), host, sizeof(host), port,
            sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return -1;
    }
    snprintf(name, size, is_v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return 0;
}

/* In the child. */
__attribute__((noreturn)) static void become(
    const struct torch_place *place, const char *master, const int to[2], const int from[2])
{
    char rank[16];
    char world[16];
    char bytes[24];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    snprintf(rank, sizeof(rank), "%" PRIu32, place->rank);
    snprintf(world, sizeof(world), "%" PRIu32, place->world_size);
    snprintf(bytes, sizeof(bytes), "%" PRIu64, place->bytes);
    setenv("GLOO_SOCKET_IFNAME", place->interface, 1);
    execlp("python3", "python3", "-c", program, rank, world, master, bytes, (char *)NULL);
    dprintf(STDOUT_FILENO, "%s\n", strerror(errno));
    _exit(127);
}

static int start(const struct torch_place *place, struct torch *torch, struct bench_error *error)
{
    char master[NI_MAXHOST + NI_MAXSERV + 16];
    int to[2];
    int from[2];

    if (name_master(place->master, master, sizeof(master)) != 0) {
        return bench_fail(error, "--torch: the address of rank 0 has no name");
    }
    if (pipe2(to, O_CLOEXEC) != 0) {
        return bench_fail(error, "--torch: no pipe: %s", strerror(errno));
    }
    torch->to_fd = to[1];
    if (pipe2(from, O_CLOEXEC) == 0) {
        torch->from_fd = from[0];
        torch->pid = fork();
        if (torch->pid == 0) {
            become(place, master, to, from);
        }
        close(from[1]);
    }
    close(to[0]);
    return torch->pid > 0 ? 0 : bench_fail(error, "--torch: no process: %s", strerror(errno));
}

/* Waits until it is ready; all else that it says is why it is not. */
static int await(struct torch *torch, struct bench_error *error)
{
    struct pollfd says = {.fd = torch->from_fd, .events = POLLIN};
    char line[512];
    size_t length = 0;

    while (length < sizeof(line) - 1) {
        ssize_t got = -1;
        if (poll(&says, 1, PATIENCE_MS) > 0) {
            got = read(torch->from_fd, line + length, sizeof(line) - 1 - length);
        }
        length += got > 0 ? (size_t)got : 0;
        line[length] = '\0';
        if (got <= 0 || strchr(line, '\n') != NULL) {
            break;
        }
    }
    if (strcmp(line, "ready\n") == 0) {
        return 0;
    }
    line[strcspn(line, "\n")] = '\0';
    return bench_fail(error, "--torch: python3 (pid %d): %s", (int)torch->pid,
        line[0] != '\0' ? line : "it ended, or did not answer in time");
}

int torch_open(const struct torch_place *place, struct torch **ret_torch, struct bench_error *error)
{
    struct torch *torch = malloc(sizeof(*torch));

    if (torch == NULL) {
        return bench_no_memory(error);
    }
    *torch = (struct torch){.to_fd = -1, .from_fd = -1};
    if (start(place, torch, error) != 0 || await(torch, error) != 0) {
        torch_close(torch);
        return -1;
    }
    *ret_torch = torch;
    return 0;
}

int torch_gather(struct torch *torch, struct bench_error *error)
{
    if (write(torch->to_fd, "\n", 1) != 1) {
        return bench_fail(error, "--torch: python3 (pid %d) takes no commands: %s", (int)torch->pid,
            strerror(errno));
    }
    return await(torch, error);
}

void torch_close(struct torch *torch)
{
    if (torch == NULL) {
        return;
    }
    if (torch->to_fd >= 0) {
        close(torch->to_fd);
    }
    if (torch->from_fd >= 0) {
        close(torch->from_fd);
    }
    if (torch->pid > 0) {
        kill(torch->pid, SIGKILL); /* it may wait for a rank that is gone */
        waitpid(torch->pid, NULL, 0);
    }
    free(torch);
}
