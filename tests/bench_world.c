/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a world of many hosts forms at one root, over loopback, for docs/scaling.md: the root is one
 * process, one host that is stopped and one that is killed are two more, and all others together a
 * fourth. Prints what the root needs. No test: nothing is asserted about time.
 *
 *     bench_world [HOSTS [HEARTBEAT_MS [HOST_TIMEOUT_MS]]]
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/world.h"

#define BEAT_SECONDS 10

/* What the processes share. Times are those of uv_hrtime, which are the host's. */
struct shared {
    atomic_uint formed, heard, lost; /* hosts that have seen it */
    atomic_ullong formed_at, heard_at, lost_at;
    atomic_bool expected; /* a loss is */
    atomic_bool over;
};

static struct shared *shared;
static uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
static uint32_t num_hosts = 1000;
static uv_loop_t loop;
static uv_timer_t pulse;
static struct config config = {
    .socket_ifname = "lo",
    .world_deadline_ms = 300000,
    .heartbeat_ms = 1000,
    .host_timeout_ms = 10000,
    .max_worlds = 1,
};

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_world: %s\n", what);
    exit(EXIT_FAILURE);
}

/* ---- hosts ---- */

static void on_formed(struct world *world)
{
    (void)world;
    atomic_store(&shared->formed_at, uv_hrtime());
    atomic_fetch_add(&shared->formed, 1);
}

static void on_received(struct world *world, uint32_t host, const uint8_t *data, size_t size)
{
    (void)world;
    (void)host;
    (void)data;
    (void)size;
    atomic_store(&shared->heard_at, uv_hrtime());
    atomic_fetch_add(&shared->heard, 1);
}

static void on_lost(struct world *world, uint32_t host, bool in_order, const struct reason *reason)
{
    (void)world;
    (void)host;
    (void)in_order;
    if (!atomic_load(&shared->expected))
        die(reason->text);
    atomic_store(&shared->lost_at, uv_hrtime());
    atomic_fetch_add(&shared->lost, 1);
}

static void on_ended(struct world *world, int status, const struct reason *reason)
{
    (void)world;
    (void)status;
    if (!atomic_load(&shared->over))
        die(reason->text);
}

static const struct world_listener listener = {
    .formed = on_formed,
    .received = on_received,
    .lost = on_lost,
    .ended = on_ended,
};

static struct world *join(struct worlds *worlds, uint32_t rank)
{
    struct world_rank ranks = {.rank = rank, .pid = (uint32_t)getpid()};
    struct world_part part = {.id = id,
        .group = "job/g",
        .world_size = num_hosts,
        .ranks = &ranks,
        .num_ranks = 1,
        .deadline_ms = 300000,
        .listener = &listener};
    struct world *world;
    struct reason reason;
    if (world_join(worlds, &part, &world, &reason) < 0)
        die(reason.text);
    return world;
}

static void on_pulse(uv_timer_t *timer)
{
    (void)timer;
}

static struct worlds *open_loop(void)
{
    struct worlds *worlds = NULL;
    if (uv_loop_init(&loop) < 0 || uv_timer_init(&loop, &pulse) < 0 ||
        uv_timer_start(&pulse, on_pulse, 10, 10) < 0 || worlds_new(&loop, &config, &worlds) < 0)
        die("no loop");
    return worlds;
}

/* A process with hosts of the ranks [first, end). */
static pid_t fork_hosts(uint32_t first, uint32_t end)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)snprintf(config.host_name, sizeof(config.host_name), "host%u", first);
    struct worlds *worlds = open_loop();
    for (uint32_t rank = first; rank < end; rank++)
        (void)join(worlds, rank);
    while (!atomic_load(&shared->over))
        (void)uv_run(&loop, UV_RUN_ONCE);
    _exit(EXIT_SUCCESS);
}

/* ---- the root's process ---- */

static void await(const atomic_uint *counter, uint32_t count)
{
    while (atomic_load(counter) < count)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void pass(uint64_t seconds)
{
    uint64_t end = uv_hrtime() + seconds * 1000000000;
    while (uv_hrtime() < end)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* "VmRSS", "VmHWM" of this process, in KiB. */
static unsigned long memory(const char *field)
{
    char line[256];
    unsigned long value = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtoul(line + strlen(field) + 1, NULL, 10);
    if (file)
        (void)fclose(file);
    return value;
}

static double seconds_since(uint64_t begin, const atomic_ullong *end)
{
    return 1e-9 * (double)(atomic_load(end) - begin);
}

static void measure_heartbeats(struct world *world)
{
    uint64_t sent[2], received[2];
    double cpu = cpu_seconds();
    world_traffic(world, &sent[0], &received[0]);
    pass(BEAT_SECONDS);
    world_traffic(world, &sent[1], &received[1]);
    printf("heartbeats: %.1f KB/s out and %.1f KB/s in at the root, %.1f %% of a CPU\n",
        1e-3 * (double)(sent[1] - sent[0]) / BEAT_SECONDS,
        1e-3 * (double)(received[1] - received[0]) / BEAT_SECONDS,
        100 * (cpu_seconds() - cpu) / BEAT_SECONDS);
}

/* From the root to all, and from one host over the root to all: what a round tells. */
static void measure_message(struct world *world)
{
    static const uint8_t data[64];
    double best = 1e9;
    for (int n = 0; n < 20; n++) {
        uint64_t begin = uv_hrtime();
        atomic_store(&shared->heard, 0);
        world_send(world, data, sizeof(data));
        await(&shared->heard, num_hosts - 1);
        double seconds = seconds_since(begin, &shared->heard_at);
        best = seconds < best ? seconds : best;
    }
    printf("a message of 64 bytes to all: %.2f ms, best of 20\n", 1e3 * best);
}

static void measure(void)
{
    uint64_t sent, received, begin = uv_hrtime();
    unsigned long before = memory("VmRSS:");
    double cpu = cpu_seconds();
    struct worlds *worlds = open_loop();
    struct reason reason;
    if (world_unique_id(worlds, id, &reason) < 0)
        die(reason.text);
    begin = uv_hrtime();
    pid_t many = fork_hosts(3, num_hosts), one = fork_hosts(1, 2), killed = fork_hosts(2, 3);
    struct world *world = join(worlds, 0);
    await(&shared->formed, num_hosts);
    world_traffic(world, &sent, &received);
    printf("%u hosts have met after %.2f s; the root: %.2f s of a CPU, %lu KiB more memory\n",
        num_hosts, seconds_since(begin, &shared->formed_at), cpu_seconds() - cpu,
        memory("VmHWM:") - before);
    printf("to each host: %.1f KB, most of it the table\n", 1e-3 * (double)sent / num_hosts);
    measure_message(world);
    measure_heartbeats(world);
    atomic_store(&shared->expected, true);
    begin = uv_hrtime();
    (void)kill(killed, SIGKILL);
    await(&shared->lost, num_hosts - 1);
    printf("a host killed: all others know after %.1f ms\n",
        1e3 * seconds_since(begin, &shared->lost_at));
    atomic_store(&shared->lost, 0);
    begin = uv_hrtime();
    (void)kill(one, SIGSTOP);
    await(&shared->lost, num_hosts - 2);
    printf(
        "a host stopped: all others know after %.2f s\n", seconds_since(begin, &shared->lost_at));
    atomic_store(&shared->over, true);
    (void)kill(one, SIGKILL);
    (void)waitpid(one, NULL, 0);
    (void)waitpid(killed, NULL, 0);
    (void)waitpid(many, NULL, 0);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    num_hosts = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : num_hosts;
    config.heartbeat_ms = argc > 2 ? strtoul(argv[2], NULL, 10) : config.heartbeat_ms;
    config.host_timeout_ms = argc > 3 ? strtoul(argv[3], NULL, 10) : config.host_timeout_ms;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (num_hosts < 4)
        die("at least 4 hosts");
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    log_set_level(LOG_LEVEL_ERROR);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("no memory");
    measure();
    return EXIT_SUCCESS;
}
