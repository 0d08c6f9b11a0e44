/* SPDX-License-Identifier: Apache-2.0 */
/* Values of settings, from text and to text: see config_private.h. */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config_metrics.h"
#include "daemon/config_private.h"
#include "protocol.h"

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

static int set_number(struct config *config, const struct config_setting *setting, const char *from,
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

static int set_state_dir(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    size_t length = strlen(text);
    if (strcmp(text, CONFIG_NO_STATE_DIR) == 0) {
        config->state_dir[0] = '\0';
        return F8_OK;
    }
    if (text[0] != '/' || length >= sizeof(config->state_dir))
        return reason_set(reason, F8_EINVAL,
            "%s: %s is neither an absolute path of at most %zu bytes nor " CONFIG_NO_STATE_DIR,
            from, text, sizeof(config->state_dir) - 1);
    memcpy(config->state_dir, text, length + 1);
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

static const char *const cuda_words[3] = {
    [CONFIG_CUDA_AUTO] = "auto",
    [CONFIG_CUDA_OFF] = "off",
    [CONFIG_CUDA_REQUIRE] = "require",
};

static const char *const family_words[3] = {
    [CONFIG_FAMILY_ANY] = "any",
    [CONFIG_FAMILY_IPV4] = "ipv4",
    [CONFIG_FAMILY_IPV6] = "ipv6",
};

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
    int word = find_word(cuda_words, text);
    if (word < 0)
        return reason_set(reason, F8_EINVAL, "%s: %s is not auto, off or require", from, text);
    config->cuda = (enum config_cuda)word;
    return F8_OK;
}

static int set_family(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    int word = find_word(family_words, text);
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

/* What leads a list leads it once: before a later name it would be part of that, and mean none. */
static int set_ifname(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    const char *names = text + (text[0] == '^');
    names += names[0] == '=';
    for (const char *at = names; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (*at == '^' || *at == '=')
            return reason_set(reason, F8_EINVAL,
                "%s: in %.200s the %c stands once, before all of the names: %cNAME,NAME", from,
                text, *at, *at);
    }
    int status =
        set_words(config->socket_ifname, sizeof(config->socket_ifname), from, text, reason);
    if (status == F8_OK)
        (void)snprintf(config->socket_ifname_from, sizeof(config->socket_ifname_from), "%s", from);
    return status;
}

static int set_one(struct config *config, const struct config_setting *setting, const char *from,
    const char *text, struct reason *reason)
{
    switch (setting->kind) {
    case KIND_SOCKET:
        return set_socket(config, from, text, reason);
    case KIND_STATE_DIR:
        return set_state_dir(config, from, text, reason);
    case KIND_GROUP:
        return set_group(config, from, text, reason);
    case KIND_LEVEL:
        return set_level(config, from, text, reason);
    case KIND_CUDA:
        return set_cuda(config, from, text, reason);
    case KIND_FAMILY:
        return set_family(config, from, text, reason);
    case KIND_IFNAME:
        return set_ifname(config, from, text, reason);
    case KIND_METRICS:
        return config_set_metrics(config, from, text, reason);
    case KIND_REACH:
        return config_set_reach(config, from, text, reason);
    case KIND_HOST:
        return set_words(config->host_name, sizeof(config->host_name), from, text, reason);
    default:
        return set_number(config, setting, from, text, reason);
    }
}

int config_set(struct config_draft *draft, const struct config_setting *setting, const char *from,
    const char *origin, const char *text, struct reason *reason)
{
    int status = set_one(&draft->config, setting, from, text, reason);
    if (status == F8_OK)
        (void)snprintf(draft->origins[setting - config_settings], CONFIG_TEXT_SIZE, "%s", origin);
    return status;
}

static void format_number(const void *field, enum config_kind kind, char *text)
{
    uint64_t value = kind == KIND_COUNT ? *(const uint32_t *)field : *(const uint64_t *)field;
    (void)snprintf(text, CONFIG_TEXT_SIZE, "%" PRIu64, kind == KIND_SECONDS ? value / 1000 : value);
}

static void format_group(const struct config *config, char *text)
{
    const struct group *group = config->has_admin_gid ? getgrgid(config->admin_gid) : NULL;
    if (config->has_admin_gid && !group)
        (void)snprintf(text, CONFIG_TEXT_SIZE, "gid %u", (unsigned)config->admin_gid);
    else
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s", group ? group->gr_name : "");
}

void config_format(
    const struct config *config, const struct config_setting *setting, char text[CONFIG_TEXT_SIZE])
{
    const void *field = (const char *)config + setting->offset;
    switch (setting->kind) {
    case KIND_SOCKET:
    case KIND_IFNAME:
    case KIND_HOST:
    case KIND_METRICS:
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s", (const char *)field);
        break;
    case KIND_STATE_DIR:
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s",
            config->state_dir[0] == '\0' ? CONFIG_NO_STATE_DIR : config->state_dir);
        break;
    case KIND_LEVEL:
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s", log_level_word(config->log_level));
        break;
    case KIND_GROUP:
        format_group(config, text);
        break;
    case KIND_CUDA:
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s", cuda_words[config->cuda]);
        break;
    case KIND_FAMILY:
        (void)snprintf(text, CONFIG_TEXT_SIZE, "%s", family_words[config->socket_family]);
        break;
    case KIND_REACH:
        (void)strcpy(text, config->metrics_reach == CONFIG_REACH_ANY ? "any" : "loopback");
        break;
    default:
        format_number(field, setting->kind, text);
    }
}

static size_t size_of(enum config_kind kind)
{
    switch (kind) {
    case KIND_COUNT:
        return sizeof(uint32_t);
    case KIND_BYTES:
    case KIND_SECONDS:
    case KIND_MS:
        return sizeof(uint64_t);
    case KIND_SOCKET:
        return sizeof(((struct config *)0)->socket);
    case KIND_STATE_DIR:
        return sizeof(((struct config *)0)->state_dir);
    case KIND_LEVEL:
        return sizeof(enum log_level);
    case KIND_GROUP:
        return sizeof(gid_t);
    case KIND_CUDA:
        return sizeof(enum config_cuda);
    case KIND_IFNAME:
        return sizeof(((struct config *)0)->socket_ifname);
    case KIND_FAMILY:
        return sizeof(enum config_family);
    case KIND_HOST:
        return sizeof(((struct config *)0)->host_name);
    case KIND_METRICS:
        return sizeof(((struct config *)0)->metrics);
    case KIND_REACH:
        return sizeof(enum config_reach);
    }
    return 0;
}

void config_copy(struct config *to, const struct config *from, const struct config_setting *setting)
{
    memcpy(
        (char *)to + setting->offset, (const char *)from + setting->offset, size_of(setting->kind));
    if (setting->kind == KIND_GROUP)
        to->has_admin_gid = from->has_admin_gid;
}
