/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of the model of link_model.h, as requests to the daemon's collectives, and the
 * answers to them.
 */
#include <string.h>

#include "status.h"
#include "tests/lib/link_model.h"

const char *link_program(uint32_t rank)
{
    const char *again = link_model.shape->again[rank];
    bool anew = link_model.state.ranks[rank].attempt > 0 && again;
    return anew ? again : link_model.shape->programs[rank];
}

const char *link_token(uint32_t rank)
{
    return link_program(rank) + link_model.state.ranks[rank].position;
}

uint32_t link_slot(char letter)
{
    uint32_t slot = 0;
    while (link_model.shape->groups[slot].letter != letter)
        slot++;
    return slot;
}

bool link_is_in(uint32_t group, uint32_t rank)
{
    return link_model.shape->groups[group].ranks >> rank & 1;
}

uint32_t link_rank_in(uint32_t group, uint32_t rank)
{
    uint32_t before = link_model.shape->groups[group].ranks & ((1u << rank) - 1);
    return (uint32_t)__builtin_popcount(before);
}

uint32_t link_leader(uint32_t group)
{
    char letter = link_model.shape->groups[group].amax_group;
    return letter ? link_slot(letter) : group;
}

struct member *link_member(uint32_t group, uint32_t rank)
{
    const struct link_rank *r = &link_model.state.ranks[rank];
    if (!world.groups[group] || !r->alive)
        return NULL;
    return group_member_for(world.groups[group], world_session(rank, r->life));
}

bool link_waits(uint32_t rank, uint32_t group, bool gathers)
{
    const struct link_rank *r = &link_model.state.ranks[rank];
    const char *program = link_program(rank);
    for (uint32_t at = 0; program[at]; at++)
        if (r->open >> at & 1 && (!gathers || program[at] == 'g') &&
            program[at + 1] == link_model.shape->groups[group].letter)
            return true;
    return false;
}

/* The names of a weight and its bucket: 'D' has others than 'd', 'E' other weights alone. */
static void names_of(char letter, uint32_t bucket, const char **ret_weight, const char **ret_bucket)
{
    static const char *const usual[LINK_BUCKETS] = {"w0", "w1"}, *const other[] = {"v0", "v1"};
    *ret_weight = (letter == 'D' || letter == 'E' ? other : usual)[bucket];
    *ret_bucket = (letter == 'D' ? other : usual)[bucket];
}

static uint8_t flavour_of(char letter)
{
    return letter == 'y' ? F8_PROTO_DELAYED : letter == 's' ? F8_PROTO_STATIC : F8_PROTO_DYNAMIC;
}

/* What a member registers: one weight a bucket. */
static void register_weights(struct member *member, uint32_t rank, uint32_t group)
{
    const struct link_group *shape = &link_model.shape->groups[group];
    uint32_t leader = link_leader(group);
    struct reason reason;
    if (leader != group)
        member->names = world.groups[leader];
    for (uint32_t b = 0; shape->buckets[b]; b++) {
        char letter = shape->buckets[b];
        const char *name, *bucket_name;
        names_of(letter, b, &name, &bucket_name);
        struct weight weight = {.ndim = 1,
            .shape = {6},
            .dtype = F8_PROTO_F32,
            .format = F8_PROTO_E4M3FN,
            .flavour = flavour_of(letter),
            .history_length = letter == 'y' ? 2 : 0,
            .static_bits = 0x3f800000,
            .amax_group = leader != group ? world.groups[leader]->id : 0};
        struct bucket_info bucket = {.name = bucket_name, .first = b, .count = 1};
        bool done = weights_add(member->list, name, &weight, UINT32_MAX, &reason) == F8_OK &&
                    weights_add_bucket(member->list, &bucket, &reason) == F8_OK &&
                    member_reserve(member, b + 1) == F8_OK;
        link_require(done, "weights can be registered");
        member_set_shard(member, b, world_region(rank), world_offset(group, b));
    }
}

static void make_group(uint32_t group)
{
    const struct link_group *shape = &link_model.shape->groups[group];
    const char name[2] = {shape->letter, '\0'};
    uint32_t size = (uint32_t)__builtin_popcount(shape->ranks);
    world.groups[group] = registry_add_group(world.job, name, size);
    link_require(
        collective_new(&world.context, world.groups[group]) == F8_OK, "a group can be made");
    memset(link_model.state.outcomes[group], 1, sizeof(link_model.state.outcomes[group]));
}

/* What is known of a group is of one generation of it. */
static void note_generation(uint32_t group)
{
    struct link_state *state = &link_model.state;
    if (state->generations[group] == world.groups[group]->generation)
        return;
    state->generations[group] = world.groups[group]->generation;
    memset(state->gathered[group], 0, sizeof(state->gathered[group]));
    memset(state->precomputed[group], 0, sizeof(state->precomputed[group]));
}

static bool join(uint32_t rank, uint32_t slot)
{
    if (!world.groups[slot])
        make_group(slot);
    struct group *group = world.groups[slot];
    struct member *member = link_member(slot, rank);
    uint32_t seat = link_rank_in(slot, rank);
    if (member && member->generation == group->generation && group->state != GROUP_BROKEN)
        return true;
    if (!collective_is_open(group) || (!member && group->members[seat]))
        return false;
    if (!member) {
        void *session = world_session(rank, link_model.state.ranks[rank].life);
        member = group_add_member(group, seat, 10 + rank, session);
        register_weights(member, rank, slot);
    }
    link_require(collective_enter(member) == F8_OK, "an open group can be entered");
    note_generation(slot);
    return true;
}

/* Numbers every request by who makes it, where in the program. */
static uint64_t tag_of(uint32_t rank)
{
    const struct link_rank *r = &link_model.state.ranks[rank];
    return 1 + (uint64_t)r->position + 100u * (r->attempt + 4u * r->life);
}

/* The request of a token, to the daemon's collective. */
static int ask(uint32_t rank, struct member *member, const char *token)
{
    struct reason reason;
    uint64_t tag = tag_of(rank);
    uint32_t bucket = (uint32_t)(token[2] - '0');
    switch (token[0]) {
    case 's':
        return collective_seal(member, tag, &(struct collective_seal){0}, &reason);
    case 'p':
        return collective_of_group(
            member, ROUND_PRECOMPUTE, tag, &(struct collective_request){0}, &reason);
    case 'y':
        return collective_of_group(
            member, ROUND_SYNC, tag, &(struct collective_request){0}, &reason);
    case 'i':
        return collective_of_group(
            member, ROUND_INVALIDATE, tag, &(struct collective_request){0}, &reason);
    case 'g':
        return collective_gather(member, tag, bucket, &(struct collective_request){0}, &reason);
    case 'x':
        return collective_pre_gather(member, bucket, 0, &reason);
    case 'c':
        return collective_changed(member, bucket, 1, &reason);
    default:
        return collective_release(member, bucket, 0);
    }
}

/* Asks and waits for the answer; one that comes before ask has returned is an answer too. */
static bool request(uint32_t rank, uint32_t slot, const char *token)
{
    struct link_rank *r = &link_model.state.ranks[rank];
    struct member *member = link_member(slot, rank);
    const struct group *group = world.groups[slot];
    if (!member || (token[0] == 's' && group->state == GROUP_SEALED &&
                       member->generation == group->generation))
        return member; /* the group had not been broken */
    uint64_t bit = 1ull << r->position;
    r->open |= bit;
    int status = ask(rank, member, token);
    if (status == ROUND_PENDING)
        return true;
    link_require(r->open & bit, "a request is refused or answered, not both");
    r->open &= ~bit;
    r->failed |= status == F8_EBROKEN;
    if (status == F8_OK && token[0] == 'r')
        r->held[slot] &= (uint8_t) ~(1u << (token[2] - '0'));
    return status == F8_OK || status == F8_EINVAL;
}

/* Lets go of everything and begins anew. */
static bool begin_anew(uint32_t rank)
{
    struct link_rank *r = &link_model.state.ranks[rank];
    if ((r->open && !link_model.shape->hasty) || r->attempt > 0)
        return false;
    r->open = 0;
    for (uint32_t g = 0; g < LINK_GROUPS; g++) {
        for (uint32_t b = 0; b < LINK_BUCKETS; b++) {
            struct member *member = link_member(g, rank);
            if (member && r->held[g] >> b & 1)
                (void)collective_release(member, b, 0);
        }
        r->held[g] = 0;
    }
    r->attempt++;
    r->failed = false;
    r->position = 0;
    return true;
}

static uint8_t length_of(char step)
{
    return step == '.' || step == '|' ? 1 : strchr("grxc", step) ? 3 : 2;
}

bool link_step(uint32_t rank)
{
    struct link_rank *r = &link_model.state.ranks[rank];
    if (r->failed)
        return begin_anew(rank);
    while (*link_token(rank) == '|' || (*link_token(rank) == '.' && !r->open))
        r->position++;
    const char *token = link_token(rank);
    if (*token == '\0' || *token == '.')
        return false;
    uint32_t slot = link_slot(token[1]);
    uint8_t length = length_of(*token);
    bool done = *token == 'j' ? join(rank, slot) : request(rank, slot, token);
    r->position += done && !r->failed ? length : 0;
    return done;
}
