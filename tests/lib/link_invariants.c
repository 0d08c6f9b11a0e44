/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold between two events in the world of link_world.h, and what of it makes one state:
 * see link_model.h.
 */
#include <string.h>

#include "tests/lib/explored.h"
#include "tests/lib/link_model.h"

static bool head_of(const struct group *group, struct round_head *ret_head)
{
    return round_head(group->collective->rounds, ret_head);
}

/* Whether a gather of the group has begun and not ended. */
static bool gathers(const struct group *group)
{
    struct round_head head;
    return head_of(group, &head) && head.run.kind == ROUND_GATHER &&
           (head.running || is_paused(group->collective->rounds));
}

static bool is_linked(const struct group *source)
{
    const struct group *leader = source->amax_group;
    return leader && leader->state == GROUP_SEALED && source->collective->entries;
}

static bool anyone_waits(uint32_t slot)
{
    bool waits = false;
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        waits |=
            link_is_in(slot, r) && link_model.state.ranks[r].alive && link_waits(r, slot, false);
    return waits;
}

/* While one is over all ranks of an amax group, none of these has a gather begun. */
static void check_order(uint32_t slot)
{
    const struct group *source = world.groups[slot], *leader = source->amax_group;
    struct round_head head;
    if (!leader || !gathers(source))
        return;
    link_require(!(head_of(leader, &head) && head.running),
        "an amax group's collective and a gather do not run side by side");
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        if (link_is_in(slot, r) && link_model.state.ranks[r].alive)
            link_require(!link_waits(r, link_leader(slot), false),
                "a gather comes after what its ranks had asked of their amax group");
}

static void check_links(uint32_t slot)
{
    const struct group *source = world.groups[slot], *leader = source->amax_group;
    if (!leader)
        return;
    bool broken = source->state == GROUP_BROKEN;
    link_require(leader->state != GROUP_SEALED || !broken, "linked groups break together");
    link_require(leader->state != GROUP_BROKEN || broken || !source->collective->entries,
        "linked groups break together");
}

/* What holds up a complete head: nothing but what its own group or the amax group shows. */
static void check_progress(uint32_t slot)
{
    const struct group *group = world.groups[slot];
    const struct rounds *rounds = group->collective->rounds;
    struct round_head head;
    if (!head_of(group, &head) || !head.complete || head.running || is_paused(rounds))
        return;
    bool blocked = early_running(rounds) > 0;
    for (uint32_t r = 0; r < LINK_RANKS; r++) {
        const struct link_rank *rank = &link_model.state.ranks[r];
        if (!link_is_in(slot, r) || !rank->alive || head.run.kind != ROUND_GATHER)
            continue;
        blocked |= rank->held[slot] >> head.run.bucket & 1;
        blocked |= link_leader(slot) != slot && link_waits(r, link_leader(slot), false);
    }
    link_require(blocked, "what can start does");
}

/* All entries of a bucket are exchanged at once, so they have the same sources. */
static void check_table(uint32_t slot)
{
    const struct amax_table *table = &world.groups[slot]->collective->table;
    const struct weight_list *list = world.groups[slot]->list;
    for (uint32_t s = 0; s < table->num_sources; s++)
        for (uint32_t e = 0; e < list->num_weights; e++) {
            uint32_t first = list->buckets[list->weights[e].bucket].first;
            const uint32_t *weights = table->sources[s].weights;
            link_require((weights[e] == AMAX_NONE) == (weights[first] == AMAX_NONE),
                "entries of a bucket have the same sources");
        }
}

/* Who has posted waits, and nothing is left of those who do not. */
static void check_exchange(uint32_t slot)
{
    const struct collective *amax = world.groups[slot]->collective;
    uint32_t waiting = 0, posted = 0, amaxes = 0, buckets = 0;
    for (const struct group *s = world.groups[slot]->sources; s; s = s->next_source) {
        waiting += s->collective->exchanging;
        link_require(s->collective->exchanging == is_paused(s->collective->rounds),
            "a gather waits for others exactly while its amaxes are posted");
    }
    if (amax->table.num_sources == 0 || world.groups[slot]->state != GROUP_SEALED)
        return;
    const struct weight_list *list = world.groups[slot]->list;
    for (uint32_t b = 0; b < list->num_buckets; b++) {
        posted += amax->table.posted[b];
        buckets += amax->table.posted[b] > 0;
    }
    for (uint32_t e = 0; e < list->num_weights; e++)
        amaxes |= amax->table.amaxes[e];
    link_require(buckets <= 1, "no two gathers wait for one another");
    link_require(
        posted == waiting, "a gather waits for others exactly while its amaxes are posted");
    link_require(posted > 0 || amaxes == 0, "no amax is left behind");
}

/* The state is the amax group's: sources have the same. */
static void check_state(uint32_t slot)
{
    const struct group *source = world.groups[slot], *leader = source->amax_group;
    if (!is_linked(source) || source->state != GROUP_SEALED)
        return;
    for (uint32_t w = 0; w < source->list->num_weights; w++) {
        uint32_t entry = source->collective->entries[w];
        if (entry == AMAX_NONE)
            continue;
        bool same = entry < leader->list->num_weights &&
                    strcmp(leader->list->weights[entry].name, source->list->weights[w].name) == 0;
        link_require(same, "an entry of an amax group is the weight that its source has");
        if (!same)
            continue;
        const struct scaling *own = &source->scalings[w], *theirs = &leader->scalings[entry];
        link_require(own->ready == theirs->ready && own->precomputed == theirs->precomputed &&
                         (!own->ready || memcmp(&own->scale, &theirs->scale, sizeof(float)) == 0),
            "all sources of an amax group have its scale");
    }
}

/* With nothing in flight a broken group has answered all, and can be entered. */
static void check_over(uint32_t slot)
{
    const struct group *group = world.groups[slot];
    if (group->state != GROUP_BROKEN || world.num_works + world.num_reserves > 0)
        return;
    link_require(!anyone_waits(slot), "a broken group answers all as soon as nothing runs");
    link_require(collective_is_open(group), "a broken group can be entered once nothing runs");
}

void link_check(void)
{
    link_require(!world.context.disturbed && !world.context.serving,
        "what one group does to another is done in the same event");
    for (uint32_t g = 0; g < LINK_GROUPS; g++) {
        if (!world.groups[g])
            continue;
        const struct collective *collective = world.groups[g]->collective;
        link_require(collective->break_status == 0,
            "what one group does to another is done in the same event");
        link_require(
            round_is_broken(collective->rounds) == (world.groups[g]->state == GROUP_BROKEN),
            "a group and its machine break together");
        check_order(g);
        check_links(g);
        check_progress(g);
        if (world.groups[g]->state == GROUP_SEALED)
            check_table(g);
        check_exchange(g);
        check_state(g);
        check_over(g);
    }
}

bool link_all_ended(void)
{
    bool ended = true;
    for (uint32_t r = 0; r < LINK_RANKS; r++) {
        const struct link_rank *rank = &link_model.state.ranks[r];
        ended &= rank->alive && !rank->failed && !rank->open && *link_token(r) == '\0';
    }
    return ended;
}

bool link_recovered(void)
{
    return link_all_ended() && link_model.state.faults > 0;
}

void link_check_end(void)
{
    for (uint32_t r = 0; r < LINK_RANKS; r++)
        link_require(!link_model.state.ranks[r].open, "everybody is answered in the end");
    for (uint32_t g = 0; g < LINK_GROUPS; g++)
        link_require(!world.groups[g] || !is_paused(world.groups[g]->collective->rounds),
            "everybody is answered in the end");
}

/* ---- what makes one state ---- */

static uint32_t slot_of(const struct group *group)
{
    uint32_t slot = 0;
    while (slot < LINK_GROUPS && world.groups[slot] != group)
        slot++;
    return slot;
}

static uint64_t hash_early(uint64_t hash, const struct early *early)
{
    uint64_t words[5] = {0};
    if (early && (early->running || early->valid))
        memcpy(words,
            (uint64_t[]){early->running, early->valid, early->work.cancelled, early->tasks[0].op,
                early->tasks[0].amax},
            sizeof(words));
    if (early && early->tasks[0].op == BACKEND_CAST && (early->running || early->valid))
        memcpy(&words[4], &early->tasks[0].scale, sizeof(float));
    return hash_bytes(hash, words, sizeof(words));
}

static uint64_t hash_scalings(uint64_t hash, const struct group *group)
{
    for (uint32_t w = 0; group->list && w < group->list->num_weights; w++) {
        struct scaling copy;
        memcpy(&copy, &group->scalings[w], sizeof(copy));
        uint32_t history = copy.delayed.history ? copy.delayed.history[copy.delayed.newest] : 0;
        uint64_t words[] = {copy.scale_version, copy.delayed.newest, copy.delayed.local,
            copy.delayed.syncs, copy.amax, copy.precomputed, copy.ready, history};
        hash = hash_bytes(hash, words, sizeof(words));
        hash = hash_bytes(hash, &copy.scale, sizeof(copy.scale));
    }
    return hash;
}

static uint64_t hash_members(uint64_t hash, const struct group *group)
{
    uint64_t departed = 0;
    for (const struct member *m = group->departed; m; m = m->next)
        departed = departed * 8 + m->rank + 1;
    for (uint32_t r = 0; r < group->world_size; r++) {
        const struct member *member = group->members[r];
        uint64_t words[4] = {departed};
        for (uint32_t w = 0; member && w < member->shards_capacity; w++)
            words[3] = words[3] * 8 + member->versions[w];
        if (member) {
            words[1] = member->generation;
            words[2] = world_rank_of(member->session) + 1;
        }
        hash = hash_bytes(hash, words, sizeof(words));
    }
    return hash;
}

static uint64_t hash_links(uint64_t hash, const struct collective *collective)
{
    const struct group *group = collective->group;
    uint64_t words[] = {slot_of(group->amax_group),
        slot_of(group->members[0] ? group->members[0]->names : NULL),
        (uint64_t)(collective->entries != NULL), collective->table.num_sources,
        (uint64_t)collective->exchanging, 0};
    for (const struct group *s = group->sources; s; s = s->next_source)
        words[5] = words[5] * 8 + slot_of(s) + 1;
    hash = hash_bytes(hash, words, sizeof(words));
    if (collective->table.num_sources == 0)
        return hash;
    size_t size = sizeof(uint32_t);
    hash = hash_bytes(hash, collective->table.posted, size * group->list->num_buckets);
    return hash_bytes(hash, collective->table.amaxes, size * group->list->num_weights);
}

static uint64_t hash_group(uint64_t hash, const struct group *group)
{
    if (!group)
        return hash_bytes(hash, "-", 1);
    const struct collective *collective = group->collective;
    uint64_t running = 0;
    for (uint32_t i = 0; i < world.num_works; i++)
        running += world.works[i] == &collective->run.work;
    for (uint32_t i = 0; i < world.num_reserves; i++)
        running += 2u * (world.reserves[i] == &collective->run.reserve);
    const struct link_timer *timer = world_timer(group);
    uint64_t words[] = {group->state, group->generation, group->arena ? group->arena->size : 0,
        running, running ? collective->run.phase : 0, timer ? timer->due : 0};
    hash = hash_bytes(hash, words, sizeof(words));
    hash = hash_rounds(hash, collective->rounds);
    hash = hash_links(hash, collective);
    hash = hash_scalings(hash, group);
    hash = hash_members(hash, group);
    for (uint32_t i = 0; i < collective->num_earlies; i++)
        hash = hash_early(hash, collective->earlies[i]);
    return hash;
}

uint64_t link_hash(void)
{
    uint64_t hash = hash_bytes(1, &link_model.state, sizeof(link_model.state));
    hash = hash_bytes(hash, &world.now, sizeof(world.now));
    for (uint32_t g = 0; g < LINK_GROUPS; g++)
        hash = hash_group(hash, world.groups[g]);
    return hash;
}
