/* SPDX-License-Identifier: Apache-2.0 */
/* Where metrics are served: see config_metrics.h. */
#include "daemon/config_metrics.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "status.h"

#define MAX_HOST 64

/* "HOST:PORT" or "[HOST]:PORT" in its parts, by number only; false if it is neither. */
static bool split(const char *text, char host[MAX_HOST], uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool brackets = length > 2 && text[0] == '[' && colon[-1] == ']';
    const char *begin = text + brackets;
    length -= brackets ? 2 : 0;
    if (!colon || length == 0 || length >= MAX_HOST)
        return false;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (!isdigit((unsigned char)colon[1]) || *end != '\0' || port > UINT16_MAX)
        return false;
    memcpy(host, begin, length);
    host[length] = '\0';
    *ret_port = (uint16_t)port;
    return brackets == (strchr(host, ':') != NULL);
}

static bool parse_network(const char *text, struct config_address *ret_address)
{
    char host[MAX_HOST];
    uint16_t port;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (!split(text, host, &port))
        return false;
    memset(ret_address, 0, sizeof(*ret_address));
    v4.sin_port = v6.sin6_port = htons(port);
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        ret_address->size = sizeof(v4);
        memcpy(&ret_address->address, &v4, sizeof(v4));
        return true;
    }
    ret_address->size = sizeof(v6);
    memcpy(&ret_address->address, &v6, sizeof(v6));
    return inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)&ret_address->address)->sin6_addr) ==
           1;
}

/* What has a slash is a path: no address has one. */
static bool parse_address(const char *text, struct config_address *ret_address)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    if (!strchr(text, '/'))
        return parse_network(text, ret_address);
    if (strlen(text) >= sizeof(path.sun_path))
        return false;
    memcpy(path.sun_path, text, strlen(text) + 1);
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->size = sizeof(path);
    memcpy(&ret_address->address, &path, sizeof(path));
    return true;
}

static bool is_local(const struct config_address *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->address;
    if (address->address.ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return address->address.ss_family == AF_UNIX || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

int config_set_metrics(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    struct config_address address;
    if (!parse_address(text, &address) || strlen(text) >= sizeof(config->metrics))
        return reason_set(reason, F8_EINVAL,
            "%s: %s is no path of a socket (with a slash, of at most %zu bytes), and no address "
            "such as 127.0.0.1:9464 or [::1]:9464",
            from, text, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    memcpy(config->metrics, text, strlen(text) + 1);
    return F8_OK;
}

int config_set_reach(
    struct config *config, const char *from, const char *text, struct reason *reason)
{
    if (strcmp(text, "loopback") != 0 && strcmp(text, "any") != 0)
        return reason_set(reason, F8_EINVAL, "%s: %s is not loopback or any", from, text);
    config->metrics_reach = strcmp(text, "any") == 0 ? CONFIG_REACH_ANY : CONFIG_REACH_LOOPBACK;
    return F8_OK;
}

void config_metrics_address(const struct config *config, struct config_address *ret_address)
{
    (void)parse_address(config->metrics, ret_address);
}

int config_check_metrics(const struct config *config, const char *origin, struct reason *reason)
{
    struct config_address address;
    if (config->metrics[0] == '\0' || config->metrics_reach == CONFIG_REACH_ANY)
        return F8_OK;
    config_metrics_address(config, &address);
    if (is_local(&address))
        return F8_OK;
    return reason_set(reason, F8_EINVAL,
        "%s: metrics %s is an address of the network, by which anybody reads the names of jobs: "
        "take 127.0.0.1, [::1] or a path, or say --metrics-reach any",
        origin, config->metrics);
}
