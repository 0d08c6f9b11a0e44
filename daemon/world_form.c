/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a world forms at its root: hosts claim ranks, those that cannot be right are refused and
 * disturb nobody, and when all ranks are there everybody gets the table. Called by the root, on the
 * loop.
 */
#include "daemon/world_private.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_GROUP ((size_t)2 * F8_PROTO_MAX_NAME + 1) /* job/group */

void world_clean_name(const char *name, char clean[65])
{
    struct reason trimmed; /* it knows how to cut UTF-8 */
    (void)snprintf(trimmed.text, sizeof(trimmed.text), "%.64s", name[0] ? name : "?");
    reason_trim(&trimmed);
    (void)snprintf(clean, 65, "%.64s", trimmed.text);
    for (char *c = clean; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

/* ---- sentences ---- */

/* "4", "4, 5" or "4-6": from the first to before the end. False: there is no room for more. */
static bool append_range(struct reason *reason, const char **comma, uint32_t first, uint32_t end)
{
    if (strlen(reason->text) > REASON_SIZE - 64) {
        reason_append(reason, "%s...", *comma);
        return false;
    }
    if (end - first > 2)
        reason_append(reason, "%s%u-%u", *comma, first, end - 1);
    else if (end - first == 2)
        reason_append(reason, "%s%u, %u", *comma, first, first + 1);
    else
        reason_append(reason, "%s%u", *comma, first);
    *comma = ", ";
    return true;
}

/* "host alpha (10.0.0.1:4711: ranks 0, 1)" */
static void append_host(struct reason *reason, const struct world_member *member,
    const uint32_t *ranks, size_t num_ranks)
{
    const char *comma = "";
    reason_append(reason, "host %s (%s: %s ", member->name, member->address,
        num_ranks == 1 ? "rank" : "ranks");
    for (size_t i = 0, end; i < num_ranks; i = end) {
        end = i + 1;
        while (end < num_ranks && ranks[end] == ranks[end - 1] + 1)
            end++;
        if (!append_range(reason, &comma, ranks[i], ranks[end - 1] + 1))
            break;
    }
    reason_append(reason, ")");
}

/* All that are there, as many as fit. */
static void append_hosts(const struct world_root *root, struct reason *reason)
{
    uint32_t shown = 0;
    for (const struct world_member *member = root->members; member; member = member->next) {
        if (!member->joined)
            continue;
        if (strlen(reason->text) > REASON_SIZE - 160) {
            reason_append(reason, " and %u more", root->num_joined - shown);
            break;
        }
        reason_append(reason, "%s", shown++ ? ", " : "");
        append_host(reason, member, member->ranks, member->num_ranks);
    }
}

/* ---- what a host says ---- */

static bool is_clean(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static int check_ranks(const F8__WorldJoin *join, struct reason *reason)
{
    if (join->n_ranks == 0 || join->n_ranks != join->n_pids)
        return reason_set(
            reason, F8_EPROTO, "it has %zu ranks and %zu process ids", join->n_ranks, join->n_pids);
    for (size_t i = 0; i < join->n_ranks; i++) {
        if (join->ranks[i] >= join->world_size)
            return reason_set(reason, F8_EINVAL, "rank %u is not below the world size %u",
                join->ranks[i], join->world_size);
        if (i > 0 && join->ranks[i] <= join->ranks[i - 1])
            return reason_set(reason, F8_EPROTO, "its ranks do not ascend");
    }
    return F8_OK;
}

static int check_join(const F8__WorldJoin *join, struct reason *reason)
{
    if (join->major != WORLD_MAJOR)
        return reason_set(reason, F8_EVERSION,
            "its f8gatherd %.40s speaks version %u of the protocol between daemons, the root's %s "
            "speaks %d: install the same version on all hosts",
            join->version, join->major, F8_VERSION, WORLD_MAJOR);
    size_t length = strlen(join->group);
    if (length == 0 || length > MAX_GROUP || !is_clean(join->group))
        return reason_set(reason, F8_EPROTO,
            "the name of its group has %zu bytes, allowed are 1 to %zu, without control characters",
            length, MAX_GROUP);
    if (join->world_size == 0 || join->world_size > WORLD_MAX_SIZE)
        return reason_set(reason, F8_ELIMIT, "its world size is %u, allowed are 1 to %d",
            join->world_size, WORLD_MAX_SIZE);
    return check_ranks(join, reason);
}

static const struct world_member *first_joined(const struct world_root *root)
{
    const struct world_member *member = root->members;
    while (!member->joined)
        member = member->next;
    return member;
}

static uint32_t pid_of(const struct world_member *member, uint32_t rank)
{
    for (uint32_t i = 0; i < member->num_ranks; i++)
        if (member->ranks[i] == rank)
            return member->ranks[member->num_ranks + i];
    return 0;
}

/* Errors name hosts, and NCCL and amax groups take daemons of one name for one host. */
static int check_name(
    const struct world_member *member, const F8__WorldJoin *join, struct reason *reason)
{
    const struct world_member *other = member->root->members;
    for (; other; other = other->next)
        if (other->joined && other->daemon != join->daemon &&
            strcmp(other->name, member->name) == 0)
            return reason_set(reason, F8_EEXIST,
                "another daemon of that name is at %s: start one of them with another --host-name",
                other->address);
    return F8_OK;
}

/* Against those who are there. */
static int check_fits(
    const struct world_member *member, const F8__WorldJoin *join, struct reason *reason)
{
    const struct world_root *root = member->root;
    if (!root->group)
        return F8_OK;
    const struct world_member *first = first_joined(root);
    if (strcmp(root->group, join->group) != 0)
        return reason_set(reason, F8_EMISMATCH,
            "it joins group %.120s with the unique id that host %s (%s) joined group %.120s with: "
            "each group needs its own",
            join->group, first->name, first->address, root->group);
    if (root->world_size != join->world_size)
        return reason_set(reason, F8_EMISMATCH,
            "it says that group %.120s has %u ranks, host %s (%s) says %u", root->group,
            join->world_size, first->name, first->address, root->world_size);
    for (size_t i = 0; i < join->n_ranks; i++) {
        const struct world_member *other = root->claimed[join->ranks[i]];
        if (other)
            return reason_set(reason, F8_EEXIST,
                "rank %u of group %.120s is at host %s (%s) already, process %u", join->ranks[i],
                root->group, other->name, other->address, pid_of(other, join->ranks[i]));
    }
    return check_name(member, join, reason);
}

/* ---- claims ---- */

/* The first that joins says which group it is. */
static int open_group(struct world_root *root, const F8__WorldJoin *join)
{
    if (root->group)
        return F8_OK;
    struct world_member **claimed = calloc(join->world_size, sizeof(struct world_member *));
    char *group = strdup(join->group);
    if (!claimed || !group) {
        free(claimed);
        free(group);
        return F8_ENOMEM;
    }
    root->claimed = claimed;
    root->group = group;
    root->world_size = join->world_size;
    return F8_OK;
}

static int claim(struct world_member *member, const F8__WorldJoin *join)
{
    struct world_root *root = member->root;
    uint32_t *ranks = malloc(2 * join->n_ranks * sizeof(*ranks));
    if (!ranks || open_group(root, join) < 0) {
        free(ranks);
        return F8_ENOMEM;
    }
    memcpy(ranks, join->ranks, join->n_ranks * sizeof(*ranks));
    memcpy(ranks + join->n_ranks, join->pids, join->n_ranks * sizeof(*ranks));
    member->ranks = ranks;
    member->num_ranks = (uint32_t)join->n_ranks;
    for (uint32_t i = 0; i < member->num_ranks; i++)
        root->claimed[ranks[i]] = member;
    root->num_claimed += member->num_ranks;
    return F8_OK;
}

void world_form_unjoin(struct world_member *member)
{
    struct world_root *root = member->root;
    for (uint32_t i = 0; i < member->num_ranks; i++)
        root->claimed[member->ranks[i]] = NULL;
    root->num_claimed -= member->num_ranks;
    if (root->num_joined > 1)
        return;
    /* Nobody is there whom another group or world size would contradict. */
    free(root->claimed);
    free(root->group);
    root->claimed = NULL;
    root->group = NULL;
}

/* ---- the table ---- */

/* Hosts in the order of their lowest ranks. */
static void number_hosts(struct world_root *root)
{
    root->num_hosts = 0;
    for (uint32_t rank = 0; rank < root->world_size; rank++) {
        struct world_member *member = root->claimed[rank];
        if (member->ranks[0] != rank)
            continue;
        member->host = root->num_hosts;
        root->hosts[root->num_hosts++] = member;
    }
}

static void describe_host(const struct world_member *member, F8__WorldTableHost *host)
{
    f8__world_table_host__init(host);
    /* protobuf-c wants pointers that it may free */
    host->name = (char *)member->name;
    host->address = (char *)member->address;
    host->n_ranks = host->n_pids = member->num_ranks;
    host->ranks = member->ranks;
    host->pids = member->ranks + member->num_ranks;
}

static struct world_frame *table_frame(const struct world_root *root)
{
    F8__WorldTable table = F8__WORLD_TABLE__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    F8__WorldTableHost *hosts = calloc(root->num_hosts, sizeof(*hosts));
    F8__WorldTableHost **pointers = calloc(root->num_hosts, sizeof(F8__WorldTableHost *));
    struct world_frame *frame = NULL;
    if (hosts && pointers) {
        table.root = root->num_hosts;
        for (uint32_t i = 0; i < root->num_hosts; i++) {
            describe_host(root->hosts[i], &hosts[i]);
            pointers[i] = &hosts[i];
            if (root->hosts[i]->own && table.root == root->num_hosts)
                table.root = i;
        }
        table.hosts = pointers;
        table.n_hosts = root->num_hosts;
        message.body_case = F8__WORLD_MESSAGE__BODY_TABLE;
        message.table = &table;
        frame = world_frame_message(&message);
    }
    free(hosts);
    free(pointers);
    return frame;
}

static void form(struct world_root *root)
{
    struct world_frame *frame = NULL;
    root->hosts = calloc(root->num_joined, sizeof(struct world_member *));
    if (root->hosts) {
        number_hosts(root);
        frame = table_frame(root);
    }
    if (!frame) {
        world_root_end(root, F8_ENOMEM, "the root has no memory for the table of hosts");
        return;
    }
    world_root_formed(root);
    log_info("world of group %s: %u ranks on %u hosts are there", root->group, root->world_size,
        root->num_hosts);
    world_root_send(root, NULL, frame);
}

/* ---- joining ---- */

static void refuse(struct world_member *member, int status, const struct reason *why)
{
    struct world_root *root = member->root;
    struct reason reason;
    char address[WORLD_ADDRESS_SIZE];
    world_address_text(&root->id.address, true, address);
    (void)reason_set(&reason, status, "the root at %s refuses host %s (%s): %s", address,
        member->name, member->address, why->text);
    if (log_allows(&root->worlds->refused, uv_now(root->worlds->loop)))
        log_of(&(struct log_fields){.host = member->name}, LOG_LEVEL_WARNING,
            "world of group %s: %s", root->group ? root->group : "(nobody yet)", reason.text);
    (void)reason_set(
        &root->refused, status, "host %s (%s): %.300s", member->name, member->address, why->text);
    world_root_drop(member, world_frame_end(status, reason.text));
}

/*
 * Whether the host has ranks that the world waits for, none that it has already, and says another
 * world size: then those ranks never come as they should, and whoever waits for them does so in
 * vain. One that only claims what others have is a stranger: without it the world can still fill.
 */
static bool is_in_vain(const struct world_root *root, const F8__WorldJoin *join)
{
    struct reason unheard;
    if (!root->group || strcmp(root->group, join->group) != 0 ||
        root->world_size == join->world_size || check_join(join, &unheard) < 0)
        return false;
    for (size_t i = 0; i < join->n_ranks; i++)
        if (join->ranks[i] < root->world_size && root->claimed[join->ranks[i]])
            return false;
    return join->ranks[0] < root->world_size;
}

/* All who are there, and all who come later, hear why. */
static void give_up(struct world_member *member, const F8__WorldJoin *join)
{
    struct world_root *root = member->root;
    struct reason *reason = &root->in_vain;
    (void)reason_set(reason, F8_EMISMATCH, "the world of group %.120s cannot form: ", root->group);
    append_host(reason, member, join->ranks, join->n_ranks);
    reason_append(
        reason, " says that it has %u ranks, others say %u: ", join->world_size, root->world_size);
    append_hosts(root, reason);
    log_warning("%s", reason->text);
    world_root_give_up(root, F8_EMISMATCH, reason->text);
}

/* Without this host the world cannot form: the earliest deadline counts. */
static void hasten(struct world_root *root, uint64_t deadline_ms)
{
    uint64_t now = uv_now(root->worlds->loop);
    if (root->ends_ms > now && deadline_ms >= root->ends_ms - now)
        return;
    root->ends_ms = now + deadline_ms;
    (void)uv_timer_start(&root->deadline, root->deadline.timer_cb, deadline_ms, 0);
}

void world_form_join(struct world_member *member, const F8__WorldJoin *join)
{
    struct world_root *root = member->root;
    struct reason reason;
    if (member->joined)
        return;
    world_clean_name(join->name, member->name);
    if (is_in_vain(root, join)) {
        give_up(member, join);
        return;
    }
    int status = check_join(join, &reason);
    if (status == F8_OK && root->in_vain.text[0] != '\0')
        status = reason_set(&reason, F8_EMISMATCH, "%s", root->in_vain.text);
    if (status == F8_OK)
        status = check_fits(member, join, &reason);
    if (status == F8_OK && claim(member, join) < 0)
        status = reason_set(&reason, F8_ENOMEM, "out of memory");
    if (status < 0) {
        refuse(member, status, &reason);
        return;
    }
    member->joined = true;
    member->daemon = join->daemon;
    member->own = join->daemon == root->worlds->daemon;
    root->num_joined++;
    world_link_settle(member->link);
    world_link_count(member->link, member->own ? NULL : &root->traffic);
    log_of(&(struct log_fields){.host = member->name}, LOG_LEVEL_DEBUG,
        "world of group %s: host %s (%s) is there, %u of %u ranks", root->group, member->name,
        member->address, root->num_claimed, root->world_size);
    hasten(root, join->deadline_ms);
    if (root->num_claimed == root->world_size)
        form(root);
}

/* ---- the deadline ---- */

void world_form_append_missing(const struct world_root *root, struct reason *reason)
{
    const char *comma = "";
    for (uint32_t rank = 0; rank < root->world_size; rank++) {
        uint32_t end = rank;
        while (end < root->world_size && !root->claimed[end])
            end++;
        if (end == rank)
            continue;
        if (!append_range(reason, &comma, rank, end))
            return;
        rank = end;
    }
}

void world_form_missing(const struct world_root *root, struct reason *reason)
{
    uint64_t after_ms = uv_now(root->worlds->loop) - root->began_ms;
    double seconds = (double)((after_ms + 50) / 100) / 10;
    char address[WORLD_ADDRESS_SIZE];
    world_address_text(&root->id.address, true, address);
    if (!root->group) {
        (void)reason_set(
            reason, F8_EDEADLINE, "the world at %s: no host has come after %g s", address, seconds);
        return;
    }
    uint32_t missing = root->world_size - root->num_claimed;
    (void)reason_set(reason, F8_EDEADLINE,
        "world of group %.120s: %u of %u ranks missing after %g s: %s ", root->group, missing,
        root->world_size, seconds, missing == 1 ? "rank" : "ranks");
    world_form_append_missing(root, reason);
    if (root->num_joined > 0) {
        reason_append(reason, "; there are ");
        append_hosts(root, reason);
    }
    if (root->refused.text[0] != '\0')
        reason_append(reason, "; refused was %s", root->refused.text);
}
