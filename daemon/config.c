/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: see config.h. One list makes flags, environment variables, help and checks, so that
 * none of them can be forgotten for a new one.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"

#define ENV_PREFIX "F8GATHERD_"
#define MAX_BYTES  ((uint64_t)1 << 62)

enum kind {
    KIND_COUNT,   /* uint32_t */
    KIND_BYTES,   /* uint64_t, with K, M, G, T */
    KIND_SECONDS, /* uint64_t milliseconds */
    KIND_MS,      /* uint64_t */
    KIND_SOCKET,
    KIND_LEVEL,
    KIND_GROUP,
    KIND_CUDA,
    KIND_IFNAME,
    KIND_FAMILY,
    KIND_HOST,
};

struct setting {
    const char *flag; /* without the dashes; upper case with the prefix in the environment */
    const char *argument;
    const char *help;
    enum kind kind;
    size_t offset; /* in struct config */
    uint64_t least, most;
};

#define AT(field) offsetof(struct config, field)

static const struct setting settings[] = {
    {"socket", "PATH", "where to listen", KIND_SOCKET, AT(socket), 0, 0},
    {"threads", "N", "workers for amax and cast (default: the number of CPUs)", KIND_COUNT,
        AT(threads), 1, 1024},
    {"log-level", "LEVEL", "error, warning, info or debug (default: info)", KIND_LEVEL,
        AT(log_level), 0, 0},
    {"memory-per-uid", "BYTES",
        "regions and gathered weights of one uid, with K, M, G or T "
        "(default: 80% of memory)",
        KIND_BYTES, AT(memory_per_uid), 1 << 20, MAX_BYTES},
    {"deadline", "SECONDS", "of a collective that gives none (default: 600)", KIND_SECONDS,
        AT(deadline_ms), 1, 1 << 30},
    {"slow", "SECONDS", "after which a waiting collective is logged (default: 30)", KIND_SECONDS,
        AT(slow_ms), 1, 1 << 30},
    {"admin-group", "NAME", "whose members may inspect, besides root and the daemon's uid",
        KIND_GROUP, AT(admin_gid), 0, 0},
    {"max-connections", "N", "clients at once (default: 1024)", KIND_COUNT, AT(max_connections), 1,
        1 << 20},
    {"max-jobs", "N", "jobs at once (default: 256)", KIND_COUNT, AT(max_jobs), 1, 1 << 20},
    {"max-groups", "N", "groups of one client (default: 64)", KIND_COUNT, AT(max_groups), 1,
        1 << 16},
    {"max-regions", "N", "regions of one client (default: 4096)", KIND_COUNT, AT(max_regions), 1,
        1 << 20},
    {"max-weights", "N", "weights of one group (default: 65536)", KIND_COUNT, AT(max_weights), 1,
        1 << 24},
    {"max-ranks", "N", "ranks of one group (default: 256)", KIND_COUNT, AT(max_ranks), 1, 4096},
    {"credit", "N", "open requests of one client, past which it is not read (default: 4096)",
        KIND_COUNT, AT(credit), 1, 1 << 20},
    {"max-rounds", "N", "open collectives of one group (default: 4096)", KIND_COUNT, AT(max_rounds),
        1, 1 << 20},
    {"max-states", "N", "scaling states stored for one uid (default: 1024)", KIND_COUNT,
        AT(max_states), 1, 1 << 20},
    {"linger", "SECONDS", "that a group's scaling state outlives it (default: 600)", KIND_SECONDS,
        AT(linger_ms), 0, 1 << 30},
    {"cuda", "WHEN", "serve GPUs: auto, off, or require, to end without (default: auto)", KIND_CUDA,
        AT(cuda), 0, 0},
    {"cuda-limit", "SECONDS", "for a call of CUDA, past which the daemon ends (default: 120)",
        KIND_SECONDS, AT(cuda_limit_ms), 1, 1 << 30},
    {"socket-ifname", "NAMES",
        "interfaces to other hosts: eth,ib (prefixes), =eth0 or ^docker; also F8_SOCKET_IFNAME",
        KIND_IFNAME, AT(socket_ifname), 0, 0},
    {"socket-family", "FAMILY", "to other hosts: ipv4, ipv6 or any (default: any)", KIND_FAMILY,
        AT(socket_family), 0, 0},
    {"host-name", "NAME", "of this host, for the others of a group (default: the system's)",
        KIND_HOST, AT(host_name), 0, 0},
    {"world-deadline", "SECONDS", "for all hosts of a group to come (default: 300)", KIND_SECONDS,
        AT(world_deadline_ms), 1, 1 << 30},
    {"heartbeat", "MILLISECONDS", "between the hosts of a group (default: 1000)", KIND_MS,
        AT(heartbeat_ms), 10, 60000},
    {"host-timeout", "MILLISECONDS", "after which a silent host is lost (default: 10000)", KIND_MS,
        AT(host_timeout_ms), 40, 1 << 30},
    {"max-worlds", "N", "groups over several hosts that form here at once (default: 64)",
        KIND_COUNT, AT(max_worlds), 1, 1 << 16},
};

#define NUM_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static uint64_t total_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void set_defaults(struct config *config)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *config = (struct config){
        .log_level = LOG_LEVEL_INFO,
        .threads = cpus < 1 ? 1 : (uint32_t)cpus,
        .max_connections = 1024,
        .max_jobs = 256,
        .max_groups = 64,
        .max_regions = 4096,
        .max_weights = 65536,
        .max_ranks = 256,
        .credit = 4096,
        .max_rounds = 4096,
        .max_states = 1024,
        .memory_per_uid = total_memory() / 5 * 4,
        .deadline_ms = 600000,
        .slow_ms = 30000,
        .linger_ms = 600000,
        .cuda = CONFIG_CUDA_AUTO,
        .cuda_limit_ms = 120000,
        .socket_family = CONFIG_FAMILY_ANY,
        .world_deadline_ms = 300000,
        .heartbeat_ms = 1000,
        .host_timeout_ms = 10000,
        .max_worlds = 64,
    };
}

/* A whole number with an optional unit; false if it is none or out of range. */
static bool parse_number(
    const char *text, bool units, uint64_t least, uint64_t most, uint64_t *ret_value)
{
    static const char letters[] = "KMGT";
    char *end;
    errno = 0;
    uint64_t value = strtoumax(text, &end, 10);
    if (errno || end == text || !isdigit((unsigned char)text[0]))
        return false;
    const char *letter = units && *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    unsigned shift = letter ? 10 * (unsigned)(letter - letters + 1) : 0;
    if (end[letter ? 1 : 0] != '\0' || value > (UINT64_MAX >> shift))
        return false;
    value <<= shift;
    if (value < least || value > most)
        return false;
    *ret_value = value;
    return true;
}

static int set_number(struct config *config, const struct setting *setting, const char *from,
    const char *text, struct reason *reason)
{
    uint64_t value;
    if (!parse_number(text, setting->kind == KIND_BYTES, setting->least, setting->most, &value))
        return reason_set(reason, F8_EINVAL,
            "%s: %s is not a number from %" PRIu64 " to %" PRIu64 "%s", from, text, setting->least,
            setting->most,
            setting->kind == KIND_BYTES ? ", with K, M, G or T at its end or without" : "");
    void *field = (char *)config + setting->offset;
    if (setting->kind == KIND_COUNT)
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = setting->kind == KIND_SECONDS ? value * 1000 : value;
    return F8_OK;
}

static int set_socket(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    size_t length = strlen(text);
    if (length == 0 || length >= sizeof(config->socket))
        return reason_set(reason, F8_EINVAL, "%s: the path %s has %zu bytes, allowed are 1 to %zu",
            from, text, length, sizeof(config->socket) - 1);
    memcpy(config->socket, text, length + 1);
    return F8_OK;
}

static int set_group(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    errno = 0;
    const struct group *group = getgrnam(text);
    if (!group)
        return reason_set(reason, F8_EINVAL, "%s: there is no group %s on this host", from, text);
    config->admin_gid = group->gr_gid;
    config->has_admin_gid = true;
    return F8_OK;
}

static int set_level(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    int level = log_level_parse(text);
    if (level < 0)
        return reason_set(
            reason, F8_EINVAL, "%s: %s is not error, warning, info or debug", from, text);
    config->log_level = (enum log_level)level;
    return F8_OK;
}

/* Which of three words it is; -1: none. */
static int find_word(const char *const words[3], const char *text)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static int set_cuda(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    static const char *const words[3] = {
        [CONFIG_CUDA_AUTO] = "auto",
        [CONFIG_CUDA_OFF] = "off",
        [CONFIG_CUDA_REQUIRE] = "require",
    };
    int word = find_word(words, text);
    if (word < 0)
        return reason_set(reason, F8_EINVAL, "%s: %s is not auto, off or require", from, text);
    config->cuda = (enum config_cuda)word;
    return F8_OK;
}

static int set_family(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    static const char *const words[3] = {
        [CONFIG_FAMILY_ANY] = "any",
        [CONFIG_FAMILY_IPV4] = "ipv4",
        [CONFIG_FAMILY_IPV6] = "ipv6",
    };
    int word = find_word(words, text);
    if (word < 0)
        return reason_set(reason, F8_EINVAL, "%s: %s is not ipv4, ipv6 or any", from, text);
    config->socket_family = (enum config_family)word;
    return F8_OK;
}

/* A name for logs and terminals; `size` with its end. */
static int set_words(
    char *field, size_t size, const char *from, const char *text, struct reason *reason)
{
    char buffer[F8_PROTO_FAULT_SIZE];
    const char *fault = f8_proto_name_fault(text, buffer);
    if (fault)
        return reason_set(reason, F8_EINVAL, "%s: the name %s", from, fault);
    if (strlen(text) >= size)
        return reason_set(reason, F8_EINVAL, "%s: %s has %zu bytes, allowed are 1 to %zu", from,
            text, strlen(text), size - 1);
    memcpy(field, text, strlen(text) + 1);
    return F8_OK;
}

static int set_one(struct config *config, const struct setting *setting, const char *from,
    const char *text, struct reason *reason)
{
    switch (setting->kind) {
    case KIND_SOCKET:
        return set_socket(config, from, text, reason);
    case KIND_GROUP:
        return set_group(config, from, text, reason);
    case KIND_LEVEL:
        return set_level(config, from, text, reason);
    case KIND_CUDA:
        return set_cuda(config, from, text, reason);
    case KIND_FAMILY:
        return set_family(config, from, text, reason);
    case KIND_IFNAME:
        return set_words(config->socket_ifname, sizeof(config->socket_ifname), from, text, reason);
    case KIND_HOST:
        return set_words(config->host_name, sizeof(config->host_name), from, text, reason);
    default:
        return set_number(config, setting, from, text, reason);
    }
}

/* "F8GATHERD_LOG_LEVEL" for "log-level". */
static void env_name(const struct setting *setting, char *name, size_t size)
{
    (void)snprintf(name, size, ENV_PREFIX "%s", setting->flag);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* All tools of a job may be told once which interface to use; our own variable wins. */
static int read_common_environment(struct config *config, struct reason *reason)
{
    const char *name = "F8_SOCKET_IFNAME", *text = getenv(name);
    if (!text || text[0] == '\0')
        return F8_OK;
    return set_words(config->socket_ifname, sizeof(config->socket_ifname), name, text, reason);
}

static int read_environment(struct config *config, struct reason *reason)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        char name[64];
        env_name(&settings[i], name, sizeof(name));
        const char *text = getenv(name);
        int status = text ? set_one(config, &settings[i], name, text, reason) : F8_OK;
        if (status < 0)
            return status;
    }
    return F8_OK;
}

static void print_help(void)
{
    printf("Usage: f8gatherd [OPTION]...\n"
           "Gathers float8 weights for the training processes of this host.\n\n");
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        char flag[40];
        (void)snprintf(flag, sizeof(flag), "--%s %s", settings[i].flag, settings[i].argument);
        printf("  %-24s %s\n", flag, settings[i].help);
    }
    printf("  %-24s %s\n  %-24s %s\n", "--help", "this text", "--version", "the version");
    printf("\nEach can be set in the environment too, as --log-level by F8GATHERD_LOG_LEVEL; flags "
           "win.\nThe socket is %s, or f8gatherd.sock in $XDG_RUNTIME_DIR where that cannot be\n"
           "made.\nExit status: 0 after SIGTERM or SIGINT, 1 if it cannot serve, 2 for a bad "
           "setting.\n",
        F8_PROTO_SOCKET);
}

#define OPTION_HELP    1000
#define OPTION_VERSION 1001

/* getopt is at `argument`; in a cluster of letters it has not passed it yet, but names the letter.
 */
static int refuse_flag(int option, const char *argument, struct reason *reason)
{
    if (option == '?' && optopt < OPTION_HELP && isgraph(optopt))
        return reason_set(reason, F8_EINVAL, "-%c is no option of f8gatherd: see --help", optopt);
    return reason_set(reason, F8_EINVAL, "%s %s: see --help", argument,
        option == '?' ? "is no option of f8gatherd" : "wants a value");
}

static int read_flags(
    int argc, char **argv, struct config *config, enum config_action *action, struct reason *reason)
{
    struct option options[NUM_SETTINGS + 3] = {0};
    for (size_t i = 0; i < NUM_SETTINGS; i++)
        options[i] = (struct option){settings[i].flag, required_argument, NULL, (int)i};
    options[NUM_SETTINGS] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    options[NUM_SETTINGS + 1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    opterr = 0;
    int option;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return refuse_flag(option, argv[optind - 1], reason);
        if (option == OPTION_HELP || option == OPTION_VERSION) {
            if (option == OPTION_HELP)
                print_help();
            else
                printf("f8gatherd %s\n", F8_VERSION);
            *action = CONFIG_EXIT;
            return F8_OK;
        }
        char from[64];
        (void)snprintf(from, sizeof(from), "--%s", settings[option].flag);
        int status = set_one(config, &settings[option], from, optarg, reason);
        if (status < 0)
            return status;
    }
    if (optind < argc)
        return reason_set(
            reason, F8_EINVAL, "%s: f8gatherd takes no arguments, see --help", argv[optind]);
    return F8_OK;
}

/* The system's socket if its directory is there or can be made, else the user's own. */
static int default_socket(struct config *config, struct reason *reason)
{
    char directory[] = F8_PROTO_SOCKET;
    *strrchr(directory, '/') = '\0';
    if (mkdir(directory, 0755) == 0 || access(directory, W_OK) == 0)
        return set_socket(config, "--socket", F8_PROTO_SOCKET, reason);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!runtime || runtime[0] == '\0')
        return reason_set(reason, F8_EINVAL,
            "%s cannot be used (%s) and XDG_RUNTIME_DIR is not set: give --socket", directory,
            strerror(errno));
    char path[sizeof(config->socket) + 32];
    (void)snprintf(path, sizeof(path), "%.100s/%s", runtime, F8_PROTO_SOCKET_NAME);
    return set_socket(config, "XDG_RUNTIME_DIR", path, reason);
}

int config_parse(int argc, char **argv, struct config *ret_config, enum config_action *ret_action,
    struct reason *reason)
{
    struct config config;
    enum config_action action = CONFIG_RUN;
    set_defaults(&config);
    int status = read_common_environment(&config, reason);
    if (status == F8_OK)
        status = read_environment(&config, reason);
    if (status == F8_OK)
        status = read_flags(argc, argv, &config, &action, reason);
    if (status == F8_OK && config.host_timeout_ms < 4 * config.heartbeat_ms)
        status = reason_set(reason, F8_EINVAL,
            "--host-timeout %" PRIu64 " is less than four heartbeats of %" PRIu64 " ms",
            config.host_timeout_ms, config.heartbeat_ms);
    if (status == F8_OK && action == CONFIG_RUN && config.socket[0] == '\0')
        status = default_socket(&config, reason);
    if (status < 0)
        return status;
    *ret_config = config;
    *ret_action = action;
    return F8_OK;
}
