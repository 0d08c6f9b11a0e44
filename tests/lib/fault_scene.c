/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, daemons and crews for tests of faults: see fault_scene.h. */
#include "lib/fault_scene.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/patience.h"

#define BLINK_MS    300
#define MAX_HELPERS 8

/* What a daemon may hold more than when it was fresh: what its allocator keeps; the directory of
 * states and the spare descriptor of a loop that has listened, which are opened once. */
#define SPARE_DESCRIPTORS 2
#if PATIENCE_S > 60 /* a sanitizer's allocator keeps far more */
#define SPARE_KB (512 * 1024)
#else
#define SPARE_KB 16384
#endif

static const char *const names[FAULT_KINDS] = {
    [FAULT_RANK_KILL] = "rank killed",
    [FAULT_RANK_STOP] = "rank stopped",
    [FAULT_HELPER_KILL] = "helper killed",
    [FAULT_HELPER_STOP] = "helper stopped",
    [FAULT_RANK_AND_HELPER] = "rank and helper killed",
    [FAULT_DAEMON_KILL] = "daemon killed",
    [FAULT_DAEMON_STOP] = "daemon stopped",
    [FAULT_DAEMON_TERM] = "daemon ended",
    [FAULT_DAEMON_AND_RANK] = "daemon and rank killed",
    [FAULT_PATH_CUT] = "path cut",
    [FAULT_PATH_LATE] = "path cut, deadline",
    [FAULT_LINK_CUT] = "link cut",
    [FAULT_LINK_BLINK] = "link cut for 0.3 s",
};

const char *scene_kind_name(enum fault_kind kind)
{
    return names[kind];
}

static bool cuts_path(enum fault_kind kind)
{
    return kind == FAULT_PATH_CUT || kind == FAULT_PATH_LATE;
}

bool scene_needs_helper(enum fault_kind kind)
{
    return kind == FAULT_HELPER_KILL || kind == FAULT_HELPER_STOP ||
           kind == FAULT_RANK_AND_HELPER || cuts_path(kind);
}

bool scene_loses_host(enum fault_kind kind)
{
    return kind >= FAULT_DAEMON_KILL && kind <= FAULT_LINK_CUT;
}

uint32_t scene_choose(struct scene *scene, uint32_t count)
{
    scene->seed = scene->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(scene->seed >> 33) % count;
}

static void check_network(int status, const struct bench_error *error)
{
    ck_assert_msg(status == 0, "%s", error->text);
}

static void check(int status, const char *call)
{
    ck_assert_msg(status == F8_OK, "%s: %s", call, f8_error_text());
}

/* ---- daemons ---- */

static void start_daemon(struct scene *scene, uint32_t host, bool again)
{
    struct test_daemon *daemon = &scene->daemons[host];
    char name[16];
    (void)snprintf(name, sizeof(name), "host-%u", host);
    const char *const arguments[] = {"--host-name", name, "--socket-ifname", NETWORK_INTERFACE,
        "--threads", "1", "--heartbeat", "400", "--host-timeout", SCENE_TIMEOUT_MS,
        "--world-deadline", "60", "--linger", "5", "--drain", "0", NULL}; /* SIGTERM is a fault */
    ck_assert_int_eq(network_enter(scene->network, host), 0);
    if (again)
        test_daemon_restart(daemon, arguments);
    else
        test_daemon_start(daemon, arguments);
    scene->fresh[host] = proc_holdings(daemon->pid);
}

static void ask_id(const struct test_daemon *daemon, uint8_t *ret_id)
{
    const struct f8_connect_options options = {.socket = daemon->socket, .job = "ids"};
    struct f8_client *client;
    check(f8_connect(&options, &client), "f8_connect");
    check(f8_unique_id(client, ret_id), "f8_unique_id");
    f8_close(client);
}

void scene_unique_id(struct scene *scene, uint8_t *ret_id)
{
    scene->root = scene_choose(scene, scene->num_hosts - 1);
    ask_id(&scene->daemons[scene->root], ret_id);
}

/* The helper of the crew's engine at a host; 0: it has none now. */
static pid_t find_helper(const struct scene *scene, uint32_t host)
{
    pid_t children[MAX_HELPERS];
    uint32_t count = proc_children(scene->daemons[host].pid, children, MAX_HELPERS);
    for (uint32_t i = 0; i < count; i++)
        if (children[i] != scene->beside_helpers[host])
            return children[i];
    return 0;
}

/* ---- crews ---- */

static void start_beside(struct scene *scene)
{
    struct fault_crew *beside = &scene->beside;
    struct fault_order join = {.task = FAULT_JOIN};
    beside->job = "beside";
    beside->ranks = scene->num_hosts - 1;
    beside->one_host = beside->ranks == 1;
    for (uint32_t r = 0; r < beside->ranks; r++) {
        beside->places[r].socket = scene->daemons[r].socket;
        beside->places[r].local_ranks = 1;
    }
    fault_crew_init(beside);
    for (uint32_t r = 0; r < beside->ranks; r++)
        fault_crew_spawn(beside, r);
    if (!beside->one_host)
        ask_id(&scene->daemons[0], join.id); /* where its root stays */
    (void)fault_crew_all(beside, &join);
    (void)fault_crew_all(
        beside, &(struct fault_order){.task = FAULT_RUN, .fresh = true, .steps = 1});
    for (uint32_t h = 0; h < scene->num_hosts && !beside->one_host; h++)
        (void)proc_children(scene->daemons[h].pid, &scene->beside_helpers[h], 1);
    for (uint32_t r = 0; r < beside->ranks; r++)
        fault_crew_order(beside, r, &(struct fault_order){.task = FAULT_RUN, .steps = UINT64_MAX});
}

static void start_crew(struct scene *scene, uint8_t *ret_id)
{
    struct fault_crew *crew = &scene->crew;
    struct fault_order join = {.task = FAULT_JOIN};
    crew->job = "run";
    crew->ranks = scene->num_hosts * SCENE_LOCAL_RANKS;
    for (uint32_t r = 0; r < crew->ranks; r++) {
        crew->places[r].socket = scene->daemons[r / SCENE_LOCAL_RANKS].socket;
        crew->places[r].local_ranks = SCENE_LOCAL_RANKS;
    }
    fault_crew_init(crew);
    for (uint32_t r = 0; r < crew->ranks; r++)
        fault_crew_spawn(crew, r);
    scene_unique_id(scene, ret_id);
    memcpy(join.id, ret_id, sizeof(join.id));
    (void)fault_crew_all(crew, &join);
    scene->syncs =
        fault_crew_all(crew, &(struct fault_order){.task = FAULT_RUN, .fresh = true, .steps = 2});
}

void scene_start(struct scene *scene, uint32_t num_hosts, uint64_t seed, uint8_t *ret_id)
{
    struct bench_error error;
    *scene = (struct scene){.num_hosts = num_hosts, .seed = seed};
    check_network(network_new(num_hosts, &scene->network, &error), &error);
    for (uint32_t h = 0; h < num_hosts; h++)
        start_daemon(scene, h, false);
    start_beside(scene);
    start_crew(scene, ret_id);
}

/* ---- faults ---- */

static void signal_to(pid_t pid, int number)
{
    ck_assert_int_eq(kill(pid, number), 0);
}

/* If there is no helper right now, as in the midst of a seal, another moment is as good. */
static void strike_helper(struct scene *scene, int number)
{
    uint64_t end = fault_now_ms() + PATIENCE_MS;
    while ((scene->victim_pid = find_helper(scene, scene->host)) == 0 && fault_now_ms() < end)
        (void)poll(NULL, 0, 1);
    ck_assert_int_ne(scene->victim_pid, 0);
    scene->began_ms = fault_now_ms();
    signal_to(scene->victim_pid, number);
}

static void kill_rank(struct scene *scene)
{
    signal_to(scene->crew.pids[scene->rank], SIGKILL);
}

static void strike_link(struct scene *scene)
{
    struct bench_error error;
    if (cuts_path(scene->kind)) {
        check_network(network_part(scene->network, scene->host, scene->other, &error), &error);
        return;
    }
    check_network(network_cut(scene->network, scene->host, &error), &error);
    if (scene->kind == FAULT_LINK_CUT)
        return;
    (void)poll(NULL, 0, BLINK_MS);
    check_network(network_mend(scene->network, scene->host, &error), &error);
}

/* Those that lose a host hit the last one, where nothing else runs. */
static void choose_victims(struct scene *scene)
{
    uint32_t far = scene->num_hosts - 1;
    bool last = scene_loses_host(scene->kind) || scene->kind == FAULT_LINK_BLINK;
    scene->host = last ? far : scene_choose(scene, scene->num_hosts);
    scene->other = far == 1 ? 0 : 1 - scene->root;
    scene->rank = scene_choose(scene, scene->crew.ranks);
    if (scene->kind == FAULT_RANK_AND_HELPER || scene->kind == FAULT_DAEMON_AND_RANK)
        while (scene->rank / SCENE_LOCAL_RANKS == scene->host)
            scene->rank = scene_choose(scene, scene->crew.ranks);
    scene->victim_pid = scene->crew.pids[scene->rank];
}

void scene_strike(struct scene *scene, enum fault_kind kind)
{
    scene->kind = kind;
    choose_victims(scene);
    pid_t daemon = scene->daemons[scene->host].pid;
    scene->began_ms = fault_now_ms();
    switch (kind) {
    case FAULT_RANK_KILL:
        kill_rank(scene);
        break;
    case FAULT_RANK_STOP:
        signal_to(scene->victim_pid, SIGSTOP);
        break;
    case FAULT_RANK_AND_HELPER:
        strike_helper(scene, SIGKILL);
        kill_rank(scene);
        break;
    case FAULT_HELPER_KILL:
    case FAULT_HELPER_STOP:
        strike_helper(scene, kind == FAULT_HELPER_KILL ? SIGKILL : SIGSTOP);
        break;
    case FAULT_DAEMON_STOP:
        signal_to(daemon, SIGSTOP);
        break;
    case FAULT_DAEMON_TERM:
        test_daemon_end(&scene->daemons[scene->host]);
        break;
    case FAULT_DAEMON_KILL:
    case FAULT_DAEMON_AND_RANK:
        test_daemon_kill(&scene->daemons[scene->host]);
        if (kind == FAULT_DAEMON_AND_RANK)
            kill_rank(scene);
        break;
    default:
        strike_link(scene);
        break;
    }
}

static bool kills_rank(enum fault_kind kind)
{
    return kind == FAULT_RANK_KILL || kind == FAULT_RANK_AND_HELPER ||
           kind == FAULT_DAEMON_AND_RANK;
}

bool scene_survives(const struct scene *scene, uint32_t rank)
{
    if (scene->kind == FAULT_RANK_STOP || kills_rank(scene->kind))
        return rank != scene->rank;
    return scene->kind != FAULT_DAEMON_STOP || rank / SCENE_LOCAL_RANKS != scene->host;
}

bool scene_names_it(const struct scene *scene, uint32_t rank, const char *text)
{
    char victim[64], host[32], other[32], pid[64], its_rank[32];
    bool there = rank / SCENE_LOCAL_RANKS == scene->host;
    (void)snprintf(victim, sizeof(victim), "rank %u (pid %d", scene->rank, (int)scene->victim_pid);
    (void)snprintf(host, sizeof(host), "host-%u", scene->host);
    (void)snprintf(other, sizeof(other), "host-%u", scene->other);
    (void)snprintf(pid, sizeof(pid), "pid %d", (int)scene->victim_pid);
    (void)snprintf(its_rank, sizeof(its_rank), "rank %u (pid %d", scene->host * SCENE_LOCAL_RANKS,
        (int)scene->crew.pids[scene->host * SCENE_LOCAL_RANKS]);
    switch (scene->kind) {
    case FAULT_RANK_STOP:
        /* A device knows whose event does not come by the pid, and of a round's later works only
         * that they did not end. */
        if (device_memory_used() && (strstr(text, pid) || strstr(text, "has not ")))
            return true;
        return strstr(text, victim);
    case FAULT_RANK_KILL:
        return strstr(text, victim);
    case FAULT_HELPER_STOP:
    case FAULT_HELPER_KILL:
        return strstr(text, pid) && (there || strstr(text, host));
    case FAULT_DAEMON_KILL:
    case FAULT_DAEMON_STOP:
        return there || (strstr(text, host) && strstr(text, its_rank));
    case FAULT_DAEMON_TERM: /* its ranks are let go of one by one */
        return there || (strstr(text, host) && strstr(text, "rank ") && strstr(text, "(pid "));
    case FAULT_PATH_CUT:
    case FAULT_PATH_LATE:
        return strstr(text, there ? other : host) &&
               strstr(text, rank / SCENE_LOCAL_RANKS == scene->other ? host : other);
    case FAULT_LINK_CUT: /* helpers may find it first, and then know no ranks */
        return strstr(text, there ? "host-" : host) &&
               (strstr(text, "rank ") || strstr(text, "the engine lost its connection"));
    default: /* one of several things, whichever was found first */
        return strstr(text, "host-") || strstr(text, "rank ") || strstr(text, "pid ");
    }
}

/* Whether a port of a host where nobody listens refuses, as it does when the way is there. */
static bool reaches(uint32_t host)
{
    char text[64];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    network_address(host, false, text, sizeof(text));
    ck_assert_int_eq(inet_pton(AF_INET, text, &to.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    bool refused = connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return refused;
}

/* Until the hosts find one another again: for some time the kernel remembers that they did not. */
static void mend_link(struct scene *scene)
{
    struct bench_error error;
    uint64_t end = fault_now_ms() + PATIENCE_MS;
    if (cuts_path(scene->kind))
        check_network(network_rejoin(scene->network, scene->host, scene->other, &error), &error);
    else
        check_network(network_mend(scene->network, scene->host, &error), &error);
    for (uint32_t from = 0; from < scene->num_hosts; from++)
        for (uint32_t to = 0; to < scene->num_hosts; to++) {
            ck_assert_int_eq(network_enter(scene->network, from), 0);
            while (from != to && !reaches(to) && fault_now_ms() < end)
                (void)poll(NULL, 0, 10);
        }
}

void scene_heal(struct scene *scene)
{
    struct test_daemon *daemon = &scene->daemons[scene->host];
    if (kills_rank(scene->kind)) {
        fault_crew_bury(&scene->crew, scene->rank);
        fault_crew_spawn(&scene->crew, scene->rank);
    }
    if (scene->kind == FAULT_RANK_STOP)
        signal_to(scene->victim_pid, SIGCONT);
    if (scene->kind == FAULT_LINK_CUT || cuts_path(scene->kind))
        mend_link(scene);
    if (scene->kind == FAULT_DAEMON_STOP)
        signal_to(daemon->pid, SIGCONT);
    if (scene->kind == FAULT_DAEMON_KILL || scene->kind == FAULT_DAEMON_TERM ||
        scene->kind == FAULT_DAEMON_AND_RANK) {
        if (scene_choose(scene, 2) == 0) /* a host that replaces it knows nothing */
            test_daemon_drop_states(daemon);
        start_daemon(scene, scene->host, true);
    }
}

/* ---- the end ---- */

static bool is_as_fresh(const struct scene *scene, uint32_t host)
{
    pid_t children[1];
    struct proc_holdings now = proc_holdings(scene->daemons[host].pid);
    const struct proc_holdings *fresh = &scene->fresh[host];
    return now.descriptors <= fresh->descriptors + SPARE_DESCRIPTORS &&
           now.threads <= fresh->threads + 4 && now.shmem_kb <= fresh->shmem_kb &&
           now.anon_kb <= fresh->anon_kb + SPARE_KB &&
           proc_children(scene->daemons[host].pid, children, 1) == 0;
}

static void await_fresh(const struct scene *scene, uint32_t host)
{
    uint64_t end = fault_now_ms() + PATIENCE_MS;
    while (!is_as_fresh(scene, host) && fault_now_ms() < end)
        (void)poll(NULL, 0, 10);
    struct proc_holdings now = proc_holdings(scene->daemons[host].pid);
    const struct proc_holdings *fresh = &scene->fresh[host];
    ck_assert_msg(is_as_fresh(scene, host),
        "the daemon of host %u holds %u descriptors, %llu KiB, %llu KiB shared, of %u, %llu, %llu",
        host, now.descriptors, (unsigned long long)now.anon_kb, (unsigned long long)now.shmem_kb,
        fresh->descriptors, (unsigned long long)fresh->anon_kb,
        (unsigned long long)fresh->shmem_kb);
}

void scene_end(struct scene *scene)
{
    struct fault_crew *beside = &scene->beside;
    beside->board->stop = true;
    for (uint32_t r = 0; r < beside->ranks; r++) {
        struct fault_report report = fault_crew_report(beside, r);
        ck_assert_msg(report.status == F8_OK, "job beside: rank %u: %s: %s", r,
            f8_status_name(report.status), report.text);
    }
    fault_crew_end(beside);
    fault_crew_end(&scene->crew);
    for (uint32_t h = 0; h < scene->num_hosts && !device_memory_used(); h++)
        await_fresh(scene, h); /* what a daemon has of devices it keeps */
    for (uint32_t h = 0; h < scene->num_hosts; h++) {
        uint64_t began = fault_now_ms();
        test_daemon_drop_states(&scene->daemons[h]);
        test_daemon_stop(&scene->daemons[h]);
        ck_assert_uint_lt(fault_now_ms() - began, PATIENCE_MS / 10);
    }
    network_free(scene->network);
}
