/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other: the unique id, the configuration, joining the segment and waiting for
 * all ranks. With blocking=0, or inside a group of such communicators, the wait runs on a
 * background thread of nccl_group.c and the communicator is ncclInProgress until then.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_comm.h"

#define CONFIG_MAGIC 0xcafebeef

bool death_is_error(void)
{
    const char *death = getenv("CUDASIM_NCCL_DEATH");
    if (death == NULL || strcmp(death, "hang") == 0)
        return false;
    if (strcmp(death, "error") != 0)
        cudasim_fault("CUDASIM_NCCL_DEATH is %s; it may be hang or error", death);
    return true;
}

int comm_lost_rank(const struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->ranks; rank++) {
        const struct member *member = &comm->segment->member[rank];
        uint32_t state = member->state;
        if (rank == comm->rank || state == MEMBER_ABSENT || state == MEMBER_LEFT)
            continue;
        if (state == MEMBER_ABORTED || segment_dead(member))
            return rank;
    }
    return -1;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (id == NULL)
        return nccl_warn(ncclInvalidArgument, "GetUniqueId : uniqueId argument is NULL");
    return segment_create(id);
}

static void set_default(int *field, int value)
{
    if (*field == NCCL_CONFIG_UNDEF_INT)
        *field = value;
}

/* Fields that a caller who was built against an older nccl.h does not have stay undefined. */
static ncclResult_t config_read(const ncclConfig_t *given, ncclConfig_t *ret_config)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (given != NULL) {
        size_t size = given->size < sizeof(config) ? given->size : sizeof(config);
        config.magic = 0;
        memcpy(&config, given, size);
        if (config.magic != CONFIG_MAGIC)
            return nccl_warn(ncclInvalidArgument,
                "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    if (config.version < NCCL_VERSION(2, 14, 0))
        config.blocking = NCCL_CONFIG_UNDEF_INT;
    if (config.version < NCCL_VERSION(2, 27, 0))
        config.CTAPolicy = NCCL_CONFIG_UNDEF_INT;
    if (config.blocking != NCCL_CONFIG_UNDEF_INT && config.blocking != 0 && config.blocking != 1)
        return nccl_warn(
            ncclInvalidArgument, "Invalid config blocking attribute value %d", config.blocking);
    if (config.CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
        (config.CTAPolicy < NCCL_CTA_POLICY_DEFAULT || config.CTAPolicy > NCCL_CTA_POLICY_ZERO))
        return nccl_warn(
            ncclInvalidArgument, "Invalid config policy attribute value %d", config.CTAPolicy);
    if ((config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.minCTAs <= 0) ||
        (config.maxCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs <= 0) ||
        config.minCTAs > config.maxCTAs)
        return nccl_warn(ncclInvalidArgument,
            "Invalid config min/max channels attribute value %d/%d", config.minCTAs,
            config.maxCTAs);
    set_default(&config.blocking, 1);
    set_default(&config.CTAPolicy, NCCL_CTA_POLICY_DEFAULT);
    *ret_config = config;
    return ncclSuccess;
}

static ncclResult_t stopped(void)
{
    return nccl_warn(ncclInternalError, "the communicator was aborted while it was initialized");
}

/* NCCL's connection to the process that made the id is refused and tried again for long. */
static ncclResult_t wait_for_creator(const struct job *group)
{
    const struct timespec moment = {.tv_nsec = 5 * 1000 * 1000};
    while (!death_is_error()) {
        if (group_is_aborted(group))
            return stopped();
        nanosleep(&moment, NULL);
    }
    return nccl_warn(ncclRemoteError, "the process that made the unique id is gone");
}

static ncclResult_t claim(const struct ncclComm *comm, struct segment *segment)
{
    uint32_t ranks = 0, claimed = 0;
    if (!atomic_compare_exchange_strong(&segment->ranks, &ranks, (uint32_t)comm->ranks) &&
        ranks != (uint32_t)comm->ranks)
        return nccl_warn(ncclInternalError,
            "Bootstrap Root : mismatch in rank count from procs %u : %d", ranks, comm->ranks);
    if (!atomic_compare_exchange_strong(&segment->member[comm->rank].claimed, &claimed, 1))
        return nccl_warn(ncclInternalError,
            "Bootstrap Root : rank %d of %d ranks has already checked in", comm->rank, comm->ranks);
    return ncclSuccess;
}

ncclResult_t init_join(struct ncclComm *comm, const struct job *group)
{
    struct segment *segment = NULL;
    enum segment_opened opened = segment_open(&comm->id, &segment);
    if (opened == SEGMENT_NO_ID)
        return nccl_warn(ncclInvalidArgument, "the unique id is not of ncclGetUniqueId");
    if (opened == SEGMENT_CREATOR_GONE)
        return wait_for_creator(group);
    ncclResult_t result = claim(comm, segment);
    if (result != ncclSuccess) {
        segment_close(segment);
        return result;
    }
    struct member *member = &segment->member[comm->rank];
    segment_identify(member);
    member->device = comm->device;
    member->state = MEMBER_JOINED;
    pthread_mutex_lock(&comms_lock); /* other threads look at all communicators of the process */
    comm->segment = segment;
    comm->clique = segment->clique;
    pthread_mutex_unlock(&comms_lock);
    atomic_fetch_add(&segment->joined, 1);
    segment_wake(segment);
    return ncclSuccess;
}

/* All ranks look at all pairs, so that all of them fail. */
static ncclResult_t check_devices(const struct ncclComm *comm)
{
    const struct member *member = comm->segment->member;
    for (int rank = 0; rank < comm->ranks; rank++)
        for (int other = rank + 1; other < comm->ranks; other++)
            if (member[rank].device == member[other].device &&
                member[rank].host == member[other].host)
                return nccl_warn(ncclInvalidUsage,
                    "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", rank,
                    other, (unsigned)(member[rank].device + 1) << 12);
    return ncclSuccess;
}

ncclResult_t init_wait(struct ncclComm *comm, const struct job *group)
{
    struct segment *segment = comm->segment;
    for (;;) {
        uint32_t generation = segment->generation;
        if (group_is_aborted(group))
            return stopped();
        if (segment->joined == (uint32_t)comm->ranks)
            break;
        if (death_is_error() && comm_lost_rank(comm) >= 0)
            return nccl_warn(
                ncclRemoteError, "rank %d is gone before all had joined", comm_lost_rank(comm));
        segment_wait(segment, generation);
    }
    segment_sweep();
    ncclResult_t result = check_devices(comm);
    if (result == ncclSuccess) {
        segment->member[comm->rank].state = MEMBER_READY;
        cudasim_count(CUDASIM_COMM_INITS, 1);
    }
    return result;
}

static struct ncclComm *comm_new(int ranks, const ncclUniqueId *id, int rank)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return NULL;
    comm->id = *id;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->device = cudasim_current_device();
    comm->result = ncclInProgress;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    return comm;
}

static ncclResult_t init_add(
    ncclComm_t *ret_comm, int ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *given)
{
    ncclConfig_t config;
    int ordinal;
    ncclResult_t result = nccl_from_cuda((int)cudaGetDevice(&ordinal), "cudaGetDevice");
    if (result != ncclSuccess)
        return result;
    if (ret_comm == NULL)
        return nccl_warn(ncclInvalidArgument, "CommInitRank : newcomm argument is NULL");
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return nccl_warn(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
    if (ranks > SEGMENT_RANKS)
        return nccl_warn(
            ncclInternalError, "%d ranks; simulated are up to %d", ranks, SEGMENT_RANKS);
    result = config_read(given, &config);
    if (result != ncclSuccess)
        return result;
    struct ncclComm *comm = comm_new(ranks, id, rank);
    if (comm == NULL)
        return ncclSystemError;
    comm->ordinal = ordinal;
    comm->config = config;
    pthread_mutex_lock(&comms_lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&comms_lock);
    *ret_comm = comm;
    return group_add((struct job){.kind = JOB_INIT, .comm = comm});
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
    ncclResult_t result = nccl_from_cuda((int)cudasim_enter(__func__), __func__);
    if (result != ncclSuccess)
        return result;
    group_begin();
    result = group_error(init_add(newcomm, nranks, &commId, rank, config));
    ncclResult_t ended = group_end();
    return result != ncclSuccess ? result : ended;
}

ncclResult_t ncclCommInitRank(ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int rank)
{
    return ncclCommInitRankConfig(newcomm, nranks, commId, rank, NULL);
}
