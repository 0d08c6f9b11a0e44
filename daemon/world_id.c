/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unique id, as bytes that go from host to host by whatever the trainers have: where the root
 * listens, the number of the world, and the token that lets in. Little-endian: hosts may differ.
 * Called by the root that makes it and by whoever joins. On the loop.
 */
#include "daemon/world_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sys/random.h>
#include <zlib.h>

/* Magic and version, then number, token, family, port, address; zeros; the checksum. */
static const uint8_t magic[8] = {'F', '8', 'W', 'O', 'R', 'L', 'D', 1};

#define AT_NUMBER   8
#define AT_TOKEN    16
#define AT_FAMILY   48
#define AT_PORT     50
#define AT_ADDRESS  52
#define AT_CHECKSUM (F8_PROTO_UNIQUE_ID_SIZE - 4)

#define IPV4 4
#define IPV6 6

static void put(uint8_t *bytes, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static uint32_t checksum(const uint8_t *packed)
{
    return (uint32_t)crc32_z(0, packed, AT_CHECKSUM);
}

void world_id_pack(const struct world_id *id, uint8_t packed[F8_PROTO_UNIQUE_ID_SIZE])
{
    memset(packed, 0, F8_PROTO_UNIQUE_ID_SIZE);
    memcpy(packed, magic, sizeof(magic));
    put(packed + AT_NUMBER, id->number, 8);
    memcpy(packed + AT_TOKEN, id->token, WORLD_TOKEN_SIZE);
    if (id->address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&id->address;
        put(packed + AT_FAMILY, IPV4, 2);
        put(packed + AT_PORT, ntohs(in->sin_port), 2);
        memcpy(packed + AT_ADDRESS, &in->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&id->address;
        put(packed + AT_FAMILY, IPV6, 2);
        put(packed + AT_PORT, ntohs(in6->sin6_port), 2);
        memcpy(packed + AT_ADDRESS, &in6->sin6_addr, 16);
    }
    put(packed + AT_CHECKSUM, checksum(packed), 4);
}

static bool unpack_address(const uint8_t *packed, struct sockaddr_storage *address)
{
    uint64_t family = get(packed + AT_FAMILY, 2);
    in_port_t port = htons((uint16_t)get(packed + AT_PORT, 2));
    memset(address, 0, sizeof(*address));
    if (family == IPV4) {
        struct sockaddr_in *in = (struct sockaddr_in *)address;
        in->sin_family = AF_INET;
        in->sin_port = port;
        memcpy(&in->sin_addr, packed + AT_ADDRESS, 4);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = port;
        memcpy(&in6->sin6_addr, packed + AT_ADDRESS, 16);
    }
    return (family == IPV4 || family == IPV6) && port != 0;
}

int world_id_unpack(
    const uint8_t packed[F8_PROTO_UNIQUE_ID_SIZE], struct world_id *ret_id, struct reason *reason)
{
    struct world_id id;
    if (memcmp(packed, magic, sizeof(magic) - 1) != 0)
        return reason_set(reason, F8_EINVAL,
            "this is no unique id: it does not begin as those of f8_unique_id do");
    if (packed[sizeof(magic) - 1] != magic[sizeof(magic) - 1])
        return reason_set(reason, F8_EINVAL,
            "the unique id has the form %u, f8gatherd %s knows %u: install the same version on "
            "all hosts",
            packed[sizeof(magic) - 1], F8_VERSION, magic[sizeof(magic) - 1]);
    if (get(packed + AT_CHECKSUM, 4) != checksum(packed) || !unpack_address(packed, &id.address))
        return reason_set(reason, F8_EINVAL,
            "the unique id is damaged: its %d bytes must come to all hosts unchanged",
            F8_PROTO_UNIQUE_ID_SIZE);
    id.number = get(packed + AT_NUMBER, 8);
    memcpy(id.token, packed + AT_TOKEN, WORLD_TOKEN_SIZE);
    *ret_id = id;
    return F8_OK;
}

int world_check_id(const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE], char ret_root[WORLD_ROOT_SIZE],
    struct reason *reason)
{
    struct world_id unpacked;
    int status = world_id_unpack(id, &unpacked, reason);
    if (status == F8_OK)
        world_address_text(&unpacked.address, true, ret_root);
    return status;
}

socklen_t world_address_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

bool world_is_link_local(const struct sockaddr_storage *address)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    return address->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

void world_address_text(
    const struct sockaddr_storage *address, bool with_port, char text[WORLD_ADDRESS_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE] = "";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        if (with_port)
            (void)snprintf(text, WORLD_ADDRESS_SIZE, "%s:%u", host, ntohs(in->sin_port));
        else
            (void)snprintf(text, WORLD_ADDRESS_SIZE, "%s", host);
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    bool scoped = in6->sin6_scope_id != 0 && if_indextoname(in6->sin6_scope_id, scope) != NULL;
    if (with_port)
        (void)snprintf(text, WORLD_ADDRESS_SIZE, "[%.39s%s%.15s]:%u", host, scoped ? "%" : "",
            scope, ntohs(in6->sin6_port));
    else
        (void)snprintf(text, WORLD_ADDRESS_SIZE, "%.39s%s%.15s", host, scoped ? "%" : "", scope);
}

int world_random(void *bytes, size_t size)
{
    uint8_t *next = bytes;
    while (size > 0) {
        ssize_t got = getrandom(next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return F8_EIO;
        next += got;
        size -= (size_t)got;
    }
    return F8_OK;
}
