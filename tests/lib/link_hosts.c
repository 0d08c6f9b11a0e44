/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other hosts in the world of the links' explorer: there are none. No group there has been given a
 * unique id, so that none has a struct hosts, and the rooms call nothing of this but hosts_release,
 * with NULL. How hosts come together has its own tests.
 */
#include <stdlib.h>

#include "daemon/collective_hosts.h"

/* A stand-in for a function that is called of groups over several hosts only. */
#define NEVER(type, name, ...)                                                                     \
    type name(__VA_ARGS__)                                                                         \
    {                                                                                              \
        abort();                                                                                   \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

void hosts_release(struct hosts *hosts)
{
    if (hosts)
        abort();
}

NEVER(int, hosts_new, struct collective *collective, const struct collective_span *span,
    struct hosts **ret_hosts)
NEVER(void, hosts_release_bucket, struct hosts *hosts, uint32_t bucket)
NEVER(void, hosts_quiet, struct hosts *hosts)
NEVER(void, hosts_next_era, struct hosts *hosts)
NEVER(void, hosts_entered, struct hosts *hosts, const struct member *member)
NEVER(bool, world_has_here, const struct world *world, uint32_t rank)
NEVER(int, world_check_id, const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE],
    char ret_root[WORLD_ROOT_SIZE], struct reason *reason)
NEVER(const char *, hosts_name_of, const struct hosts *hosts, const struct member *member)
NEVER(bool, hosts_have, const struct hosts *hosts, const char *name)
NEVER(void, hosts_serve, struct hosts *hosts)

NEVER(void, hosts_tell_asked, struct hosts *hosts, const struct member *member,
    const struct round_request *request)
NEVER(void, hosts_tell_changed, struct hosts *hosts, const struct member *member, uint32_t first,
    uint32_t count)
NEVER(void, hosts_tell_gone, struct hosts *hosts, const struct member *member, bool died)
NEVER(void, hosts_tell_broke, struct hosts *hosts, int status, const struct reason *cause)
NEVER(void, hosts_tell_crossing, struct hosts *hosts, uint32_t host, uint32_t told,
    uint32_t awaited, const struct group *waiting)
NEVER(void, hosts_tell_amax, struct hosts *hosts, uint32_t bucket, const uint32_t *amaxes,
    uint32_t count)

NEVER(int, hosts_prepare_seal, struct hosts *hosts, const struct member *member,
    struct reason *reason)
NEVER(int, hosts_seat_lists, struct hosts *hosts, struct reason *reason)
NEVER(int, hosts_compare_lists, struct hosts *hosts, const struct weight_list *list,
    struct reason *reason)
NEVER(struct weight_list *, hosts_common_list, const struct hosts *hosts, struct weight_list *list)
NEVER(int, hosts_reserve_versions, struct hosts *hosts)

NEVER(void, engine_prepare, struct hosts *hosts)
NEVER(void, engine_reserved, struct hosts *hosts, int status)
NEVER(void, engine_reduce, struct hosts *hosts)
NEVER(void, spread_begin, struct hosts *hosts)
NEVER(uint32_t, spread_next_piece, struct hosts *hosts)
NEVER(void, spread_cast, struct hosts *hosts, uint32_t end)
NEVER(uint64_t, engine_due, const struct hosts *hosts)
NEVER(bool, engine_is_timed, const struct hosts *hosts)
NEVER(void, engine_go_on, struct hosts *hosts)
NEVER(bool, engine_has_mapped, const struct hosts *hosts, const struct arena *arena)
NEVER(void, engine_forget_arena, struct hosts *hosts)
NEVER(uint64_t, engine_patience, const struct hosts *hosts)
NEVER(int, comm_lay_out, struct hosts *hosts, const struct backend_world **ret_world)
NEVER(void, comm_await_turn, struct hosts *hosts)
NEVER(void, comm_end_turn, struct hosts *hosts)
NEVER(void, comm_failed, struct hosts *hosts)

/* All ranks are on this host. */
const char *hosts_name_of_rank(const struct hosts *hosts, uint32_t rank)
{
    (void)hosts;
    (void)rank;
    return NULL;
}
