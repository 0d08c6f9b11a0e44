/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of states in the world of the links' explorer: nothing is stored, every seal is fresh.
 * What is explored is how groups hang together; the store has its own tests.
 */
#include "daemon/collective_private.h"
#include "status.h"

int collective_check_state(struct collective *collective, const struct weight_list *list)
{
    (void)collective;
    (void)list;
    return F8_OK;
}

int collective_take_state(struct collective *collective)
{
    struct group *group = collective->group;
    for (uint32_t w = 0; w < group->list->num_weights; w++) {
        const struct weight *weight = &group->list->weights[w];
        if (weight->flavour == F8_PROTO_DELAYED && weight->amax_group == 0)
            scaling_reset(&group->scalings[w], weight);
        collective_push(collective, w);
    }
    return F8_OK;
}

bool collective_settle_state(struct collective *collective)
{
    (void)collective;
    return false;
}

void collective_keep_state(struct group *group)
{
    (void)group;
}

void state_release(struct state *state)
{
    (void)state;
}
