/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libf8client: how a training process uses f8gatherd, the host daemon that all-gathers float8
 * weights for sharded training (FSDP) over shared memory.
 *
 * The course of a run, per rank:
 *
 *     f8_connect -> f8_group_join -> f8_region_alloc -> f8_register -> f8_seal
 *     each step:  write the shards, f8_changed, f8_precompute + f8_wait,
 *                 then per bucket f8_gather ... f8_post_gather ... use ... f8_release
 *     f8_close
 *
 * On a data x tensor parallel mesh, per rank: group "dp@tp=0" of the ranks that hold the same
 * tensor parallel part gathers, group "mesh" of all ranks takes the amaxes.
 *
 *     f8_group_join of both -> f8_register to dp@tp=0, where the weights name mesh as their
 *     amax_group -> f8_seal of dp@tp=0, then of mesh
 *     each step:  f8_changed of dp@tp=0, f8_precompute of mesh + f8_wait, the gathers of dp@tp=0;
 *                 with delayed weights then, all gathers waited for, f8_sync of mesh + f8_wait
 *     if either breaks, both do: f8_group_rejoin of both, f8_seal as above
 *
 * Pipeline stages and replicas (HSDP) are groups of their own, side by side.
 *
 * Results. Every int function returns F8_OK (0) or a negative F8_E... of status.h. On
 * failure the ret_ outputs are untouched and f8_error_text() of the calling thread says what was
 * wrong, with names and values.
 *
 * Names. 1 to 255 bytes of UTF-8 without control characters; F8_EINVAL otherwise.
 *
 * Threads. Any thread may call any function at any time, except f8_close, which must be the last
 * call on its client. A thread that waits never blocks another's call (but see reconnect_ms).
 *
 * Signals. A wait for other ranks (f8_seal, f8_wait, f8_post_gather, f8_quiesce) that a signal
 * handler ends returns F8_EINTR; nothing is lost, call it again. So does f8_precompute, f8_sync,
 * f8_invalidate, f8_pre_gather or f8_gather, in which case nothing was sent. Calls that the daemon
 * answers at once are not ended by signals, unless they look for a daemon (reconnect_ms).
 *
 * Fork. In a forked child every call returns F8_EFORKED, and f8_close only frees. The gathered
 * weights are not mapped in the child. CUDA does not work in a child of a process that has used it:
 * there f8_set_device of a new client is F8_EFORKED too.
 *
 * Order. All ranks of a group must ask for the same collectives (seal, precompute, gather) in the
 * same order, as with NCCL; unlike NCCL, a difference is an error on every rank that names both.
 * Between groups there is no order but what amax groups ask for.
 *
 * Ownership of shards. From f8_precompute, f8_pre_gather or f8_gather on, the daemon may read the
 * shards concerned and the caller must not write them. They are the caller's again when the wait
 * for that request returns, with success or failure: f8_post_gather for a gather and its
 * pre-gather, f8_wait for a ticket, f8_quiesce for all of a group's.
 */
#ifndef F8CLIENT_H
#define F8CLIENT_H

#include "f8types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a status code, such as "ranks disagree". Never NULL; a literal. */
F8_API const char *f8_status_text(int status);

/* Its name, such as "F8_EMISMATCH". Never NULL; a literal. */
F8_API const char *f8_status_name(int status);

/*
 * Why the last failed call of this thread failed: a sentence that names things and values. Never
 * NULL. Owned by the library; valid until the thread's next f8 call.
 */
F8_API const char *f8_error_text(void);

/* "0.1.0": the version of this library. A literal. */
F8_API const char *f8_version(void);

/*
 * GPUs. A rank whose shards lie in CUDA device memory registers them with f8_region_share_pointer,
 * and everything runs in the order of its streams: f8_pre_gather, f8_gather and f8_precompute read
 * the shards after what `stream` has been given so far, and nothing waits for the device: after
 * f8_post_gather and f8_wait it is `stream` that waits, so work that is put on it from then on
 * finds the weights gathered, or may write the shards. f8_release says that the reads which
 * `stream` has been given so far are the last; what is asked for later, on whatever stream, comes
 * after them. Views hold device addresses. A `stream` is a cudaStream_t or CUstream of the client's
 * device and of its primary context (in which PyTorch and the CUDA runtime work), not one that is
 * being captured; NULL is the legacy default stream. On the host it is NULL.
 *
 * Each open precompute and gather has one of 128 events, and so has each shared slot of a sealed
 * group; with none left a request is F8_ELIMIT. F8_EIO: a call of CUDA failed, and the text has
 * CUDA's name for it; F8_ENOMEM: for want of memory. The CUDA driver (libcuda.so.1) is found when
 * it is first needed; nothing here links to it.
 *
 * f8_group_rejoin, f8_seal after it, and f8_close wait for the reads that releases have told of,
 * 10 s at most: a stream that is stuck keeps the arena mapped. What was not released must not be
 * read by then.
 */

/* Settings of f8_connect. Zero-initialise; zero or NULL takes the default. */
struct f8_connect_options {
    const char *socket; /* path; default $F8GATHERD_SOCKET, and if that is not set the first that
                           exists of /run/f8gatherd/f8gatherd.sock and
                           $XDG_RUNTIME_DIR/f8gatherd.sock */
    const char *job;    /* name of the training run, at most 255 bytes; required */
    const char *token;  /* optional secret of the job, set by its first client: separates
                           containers that share a uid */
    int reconnect_ms;   /* milliseconds, F8_FOREVER; 0: off. How long a call that finds the daemon
                           gone does by itself what f8_reconnect does, before it returns */
};

/*
 * With reconnect_ms a restart of the daemon is to the trainer what any break of its groups is. The
 * call that meets the daemon's end tells all to the one that takes its place, and then returns
 * F8_EBROKEN, also if it is of no group: nothing came of it (of a sync, f8_syncs knows). So do all
 * calls of the client's groups, naming the daemon that ended, until f8_group_rejoin, which has
 * nothing left to do; f8_seal follows, with F8_STATE_CONTINUE. Until f8_group_rejoin what was held
 * may be read and released. Groups over several hosts are left to f8_group_rejoin_hosts, as below.
 *
 * Of several threads whose calls meet the end, one does this, when the others have left their
 * calls; those return what it returns, and calls that begin meanwhile wait for it. Without a daemon
 * in time (a timeout of the call's own does not count): F8_ENODAEMON, F8_ECONN; F8_EINTR after a
 * signal to the thread that looks; else errors of f8_reconnect. Then the next call tries first, but
 * not what needs no daemon: f8_close, f8_release, f8_gather_test, f8_view_check, f8_copy_size,
 * f8_copy_out, f8_syncs, f8_capability, f8_traffic_read. f8_reconnect may be called all the same.
 */

/*
 * Connects to the daemon. Gives a client in *ret_client, to be ended with f8_close.
 * F8_ENODAEMON names every socket tried; F8_EVERSION both versions; F8_EPERM a wrong token.
 */
F8_API int f8_connect(const struct f8_connect_options *options, struct f8_client **ret_client);

/*
 * Whether the daemon has a capability, such as "flavour.static": *ret_has becomes 1 or 0, and 0 for
 * a name that this library does not know. docs/protocol.md lists the names.
 */
F8_API int f8_capability(struct f8_client *client, const char *name, int *ret_has);

/*
 * Ends the connection and frees the client, its groups, regions and mappings; NULL is allowed.
 * Leaving a sealed group breaks it for its other ranks (they may still use what they hold).
 * Whoever connects after it has returned finds the client's ranks free.
 * Must be the last call on the client; other threads' waits must have ended. On a device it waits
 * until the daemon has let go of the client's memory, or, if the connection is lost, until it has
 * ended; the memory may be freed then. 10 s at most.
 */
F8_API void f8_close(struct f8_client *client);

/*
 * For a client whose daemon has ended (F8_ECONN): connects to the one that takes its place at the
 * same socket, and tells it all that the old one was told: the device, all regions, all groups with
 * their ranks, weights and buckets. Handles and addresses stay what they are, and shards keep what
 * is in them. What was asked for and not waited for is lost, views that were held are stale,
 * versions restart. Then each group is where f8_group_rejoin leaves it, and f8_seal must follow,
 * with F8_STATE_CONTINUE for the scales of before. docs/checkpoints.md has the loop around it.
 *
 * Tries until a daemon answers, at most `timeout_ms` (0: once, where one that is there but does not
 * answer has 10 s; F8_FOREVER): F8_ENODAEMON, F8_ECONN. On a device it first waits as f8_close. Any
 * other failure is of what the new daemon was told, as of the calls that told the old one;
 * f8_reconnect may be called again after each. A group over several hosts needs a new unique id:
 * f8_group_rejoin_hosts joins and registers it again, of groups that take amaxes first.
 * On a client that is connected it ends that connection first, which breaks its groups.
 *
 * A client does this by itself where f8_connect_options.reconnect_ms asks for it.
 *
 * F8_EBUSY, and nothing was done: another thread's call on the client or what is its own has not
 * returned, as it does with F8_ECONN once the daemon is gone; try again. Calls that begin meanwhile
 * are F8_EBUSY too, without effect. Each host region keeps a descriptor open for this.
 */
F8_API int f8_reconnect(struct f8_client *client, int timeout_ms);

/*
 * Allocates `size` bytes (> 0) of zeroed shared memory for shards, 2 MiB-aligned and backed by
 * huge pages where the kernel allows, and registers them with the daemon. *ret_address is where
 * this process reads and writes them, until f8_close. F8_ELIMIT: the uid's quota is full.
 */
F8_API int f8_region_alloc(
    struct f8_client *client, size_t size, struct f8_region **ret_region, void **ret_address);

/*
 * Registers a memfd that the caller owns and keeps. It must be sealed against shrinking
 * (F_SEAL_SHRINK), not be hugetlb, and be readable; F8_EREGION names what is wrong.
 */
F8_API int f8_region_share(struct f8_client *client, int memfd, struct f8_region **ret_region);

/*
 * The client works on CUDA device `device`, as this process numbers them, from now on: the daemon
 * is told, and the events are made by which streams are ordered. f8_region_share_pointer does it by
 * itself; a rank without any shard calls it, before it joins its first group. A second call for
 * the same device does nothing. F8_ENOENT: no driver, no such device, or the daemon has no CUDA
 * backend or not this device, and the text says why; F8_EBUSY: the client works on another
 * device; F8_EORDER: it has joined a group. The calling thread's current context stays what it is.
 */
F8_API int f8_set_device(struct f8_client *client, int device);

/*
 * Registers `size` bytes of CUDA device memory at `pointer`, which the caller owns and must not
 * free before f8_region_free or f8_close. What kind it is the library finds out: memory of
 * cudaMalloc goes by its legacy IPC handle (which shares the whole allocation), memory of the VMM
 * functions (such as PyTorch's expandable segments, of which one tensor may span several) by
 * descriptors; these must have been made shareable as POSIX descriptors. F8_EREGION names what
 * cannot be shared: memory pools (cudaMallocAsync), managed memory, host memory, more bytes than
 * were allocated. Errors of f8_set_device, for the device that the memory is on.
 */
F8_API int f8_region_share_pointer(
    struct f8_client *client, const void *pointer, size_t size, struct f8_region **ret_region);

/*
 * Gives a region back; its memory goes when no weight of this client uses it and no request reads
 * it. F8_EBUSY names a weight that still lies in it. The pointer is invalid after success, and so
 * is the address that f8_region_alloc gave. Device memory may be freed from then on; not after a
 * failure: on F8_ECONN the daemon may read it until its end, which f8_close awaits.
 */
F8_API int f8_region_free(struct f8_region *region);

/*
 * Joins group `name` (at most 255 bytes) as `rank` of `world_size`, and gives it in *ret_group.
 * A client may be in several groups; their collectives run side by side. Does not wait for the
 * other ranks. F8_EEXIST: another process holds that rank, or this client is in that group;
 * F8_EMISMATCH: the group has another world size; F8_ELIMIT: the client is in as many groups as the
 * daemon allows.
 */
F8_API int f8_group_join(struct f8_client *client, const char *name, uint32_t rank,
    uint32_t world_size, struct f8_group **ret_group);

/*
 * After a failure broke the group: joins its next generation. Weights and buckets that this rank
 * registered are kept, with the amax groups that they name; versions restart, views held become
 * stale. f8_seal must follow. A group and the amax group that its weights name break together.
 * After a reconnection, which has joined it, this only says that the trainer knows.
 *
 * What waits as a group breaks ends with the status of the first cause: F8_ERANKDEAD, F8_EMISMATCH,
 * F8_EDEADLINE, F8_EIO ...; whatever is asked of it after that, until this call, with F8_EBROKEN.
 * f8_error_text names the first cause in both, whichever rank, group or host it came from.
 */
F8_API int f8_group_rejoin(struct f8_group *group);

/*
 * Groups over several hosts. Each host has its own daemon; they find one another by a unique id,
 * which rank 0 of a group asks its daemon for and every rank of the group is given, by whatever the
 * trainer has (a store, MPI, a file). One id is good for one group and is a secret of it: who has
 * it can claim ranks. *ret_id gets F8_UNIQUE_ID_SIZE bytes. The daemon listens for the others from
 * here on, until all are there or its time for that (--world-deadline) is over. F8_EIO, F8_EINVAL:
 * it cannot, and the text says why, such as an interface (F8_SOCKET_IFNAME) that is not there.
 */
F8_API int f8_unique_id(struct f8_client *client, uint8_t ret_id[F8_UNIQUE_ID_SIZE]);

/* How a group spans hosts. */
struct f8_hosts {
    const uint8_t *id; /* borrowed for the call: F8_UNIQUE_ID_SIZE bytes, the same on all ranks */
    uint32_t local_ranks; /* how many ranks of the group are on this host */
};

/*
 * As f8_group_join, for a group whose ranks are on several hosts. Waits for nobody: the daemons
 * meet when all local ranks have joined, and f8_seal waits for that; what kept them from it is its
 * error: F8_EDEADLINE names the ranks that did not come, F8_EPERM, F8_EEXIST and F8_EMISMATCH what
 * the root refused, F8_ECONN that it cannot be reached. F8_EINVAL: these bytes are no unique id.
 * F8_EMISMATCH: another rank of this host gave another number of local ranks. One that waits with
 * another id than this hears that from f8_seal: of two ids the one that was given last counts.
 */
F8_API int f8_group_join_hosts(struct f8_client *client, const char *name, uint32_t rank,
    uint32_t world_size, const struct f8_hosts *hosts, struct f8_group **ret_group);

/*
 * As f8_group_rejoin, with the hosts that are there now: after one was lost, or replaced, the group
 * needs a new unique id, which all its ranks must give; so it does after all ranks of a host have
 * left. As long as each host keeps one, f8_group_rejoin is enough, and a process that replaces a
 * rank joins with the id that the group has.
 */
F8_API int f8_group_rejoin_hosts(struct f8_group *group, const struct f8_hosts *hosts);

/*
 * One weight: the whole tensor's shape and this rank's shard of it. Dimension 0 is cut as
 * torch.chunk does: c = ceil(shape[0] / world_size) rows a rank, rank r has rows
 * [r*c, min((r+1)*c, shape[0])); a shard may be empty. The shard is contiguous and row-major.
 */
struct f8_weight_desc {
    const char *name; /* unique in the group, at most 255 bytes */
    uint32_t ndim;    /* 1 to F8_MAX_DIMS */
    uint64_t shape[F8_MAX_DIMS];
    enum f8_dtype dtype;
    enum f8_flavour flavour;
    enum f8_format format;   /* float8 flavours; ignored for raw ones */
    int power_of_two;        /* dynamic, delayed: round scales down to powers of two */
    float static_scale;      /* F8_STATIC: finite and > 0 */
    uint32_t history_length; /* F8_DELAYED: syncs that count, 1 to 1024; 0: 16 */
    enum f8_history history; /* F8_DELAYED */
    /*
     * dynamic, delayed: the group over whose ranks the amax is taken; NULL: the weight's own. On a
     * data x tensor parallel mesh it is a group of all the ranks that shard the weight. It must
     * have been joined by the same client, has no weights of its own, and is sealed after the
     * groups whose weights name it; f8_precompute, f8_sync and f8_invalidate of such a weight, and
     * its state (f8_syncs, f8_export), are asked of that group. A group's weights may name one such
     * group besides their own.
     */
    const struct f8_group *amax_group;
    const struct f8_region *region; /* where the shard lies; may be NULL if the shard is empty */
    uint64_t offset;                /* of the shard in the region, in bytes: a multiple of the
                                       element size */
};

/* One bucket: weights that are gathered together, such as those of one transformer block. */
struct f8_bucket_desc {
    const char *name; /* unique in the group, at most 255 bytes */
    uint32_t first;   /* index of its first weight, in order of registration */
    uint32_t count;   /* number of weights, >= 1; every weight is in exactly one bucket */
    int shared;       /* nonzero: it takes one of the group's shared slots for each use; zero: it
                         has a place of its own, and its address never changes */
};

/*
 * Registers weights and buckets, in as few messages as they fit in. May be called several times
 * before f8_seal; indices count on. Weight i of the first call is weight i of the group. All
 * ranks must register the same lists but for region and offset; f8_seal compares them.
 * On failure nothing of this call stays registered.
 */
F8_API int f8_register(struct f8_group *group, const struct f8_weight_desc *weights,
    uint32_t num_weights, const struct f8_bucket_desc *buckets, uint32_t num_buckets);

/* Settings of f8_seal; all ranks must give the same. Zero-initialise. */
struct f8_seal_options {
    uint32_t slots;      /* shared slots; must be > 0 if any bucket is shared; see f8_release */
    int poison;          /* nonzero: freed places are filled with NaN bytes, to find stale reads;
                            on a device f8_release then waits for its stream */
    int64_t deadline_ms; /* F8_DEFAULT_DEADLINE or milliseconds */
    enum f8_state state;
    uint64_t syncs;     /* F8_STATE_CONTINUE: what the stored state must have seen */
    const void *import; /* F8_STATE_IMPORT: import_size bytes; copied before f8_seal returns */
    size_t import_size;
};

/*
 * Collective. Waits until all ranks have sealed, compares their lists and reserves the memory of
 * the gathered weights in full; an amax group without buckets has none. F8_EMISMATCH names the
 * first difference and both ranks; F8_ELIMIT what is held by whom. NULL options are all zero. After
 * F8_EINTR call it again: the same seal is waited for, with the options that it was asked with.
 *
 * What is stored is dropped or replaced only by a seal that succeeds. F8_EINVAL: options that do
 * not go together; F8_EMISMATCH: a stored or imported state is of other weights, or has seen
 * another number of syncs; F8_ENOENT: F8_STATE_CONTINUE with syncs other than 0, F8_ANY_SYNCS
 * included, of delayed weights for which nothing is stored. A first start so seals with
 * F8_STATE_FRESH, or continues at syncs 0, which refuses what an earlier run has left.
 *
 * F8_EORDER: the group is sealed. F8_EBROKEN: it broke, from the cause that the text names, and
 * f8_group_rejoin must come first.
 */
F8_API int f8_seal(struct f8_group *group, const struct f8_seal_options *options);

/*
 * The number of syncs that the state of the group's delayed weights has seen: at f8_seal as the
 * daemon knows it, from then on with each f8_sync that this rank has waited for. After a restart,
 * one more than the trainer remembers means that its last f8_sync did happen. F8_EORDER before
 * f8_seal.
 */
F8_API int f8_syncs(struct f8_group *group, uint64_t *ret_syncs);

/*
 * The scaling state of the group, as of its last sync, in the form of docs/state.md, for a
 * checkpoint. No collective: one rank's is that of all. *ret_data is malloc'ed and the caller's to
 * free. F8_ENOENT: the group has none, it has no delayed weights.
 */
F8_API int f8_export(struct f8_group *group, void **ret_data, size_t *ret_size);

/* A collective under way that f8_wait or f8_test completes. */
typedef uint64_t f8_ticket;

/*
 * Collective, and optional: without it each f8_gather finds its scales by itself. Starts the
 * batched computation of the scales of all dynamic weights: one amax per weight that names the
 * group, one reduction. Returns once it is sent. F8_EBUSY names a bucket, of this group or of one
 * whose weights name it, that this rank gathers and has not waited for; F8_ELIMIT: 16 tickets open.
 */
F8_API int f8_precompute(
    struct f8_group *group, int64_t deadline_ms, void *stream, f8_ticket *ret_ticket);

/*
 * Collective. Once a step, after the gathers: the amax that each delayed weight had in its last
 * gather, over all ranks, enters its history, and its next scale follows from that. An amax that
 * is zero or not finite keeps the scale, and is counted. Tickets and errors as f8_precompute.
 */
F8_API int f8_sync(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket);

/*
 * Collective. After weights were loaded anew (not trained on): forgets histories and precomputed
 * scales; the next gather of each weight begins afresh. Tickets and errors as f8_precompute.
 */
F8_API int f8_invalidate(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket);

/*
 * Waits for a ticket at most timeout_ms (F8_FOREVER: no limit). F8_OK or the collective's error;
 * either way the ticket is used up. F8_EDEADLINE from the timeout and F8_EINTR leave it open. On a
 * device `stream` then waits for the collective.
 */
F8_API int f8_wait(struct f8_group *group, f8_ticket ticket, int timeout_ms, void *stream);

/* f8_wait without waiting: *ret_done tells whether it is done; if so its result is returned. */
F8_API int f8_test(struct f8_group *group, f8_ticket ticket, int *ret_done, void *stream);

/*
 * Optional, waits for nobody: says that this rank's shards of the bucket are final, so that its
 * part of the work can begin before the other ranks ask. f8_gather of the bucket must follow; an
 * error of the pre-gather is returned by it, or by f8_post_gather, and then the bucket is not held.
 */
F8_API int f8_pre_gather(struct f8_group *group, uint32_t bucket, void *stream);

/*
 * Collective. Asks for the gather of a bucket and returns once that is sent, so that a trainer
 * can run ahead. F8_EBUSY: this rank holds the bucket or has asked for it, or it holds or has asked
 * for as many shared buckets as there are slots.
 */
F8_API int f8_gather(struct f8_group *group, uint32_t bucket, int64_t deadline_ms, void *stream);

/* A gathered weight: read-only, valid until f8_release of its bucket (or rejoin, or close). */
struct f8_view {
    const void *data;   /* row-major, shape[0] rows; 4096-aligned; padding rows follow as zeros */
    uint64_t size;      /* bytes of data, without padding */
    const float *scale; /* float8: data are fp8(x * *scale), so x is about data / *scale. Lies
                           beside the data.
                           Raw flavours: NULL */
    uint32_t ndim;
    uint64_t shape[F8_MAX_DIMS];
    enum f8_wire wire;
    enum f8_dtype dtype; /* of the source */
    uint32_t weight;
    uint64_t generation; /* of the use; for f8_view_check */
};

/*
 * Waits for the gather of a bucket. On success `views` (room for `num_views`, at least the
 * bucket's number of weights, or NULL with 0) tells where each weight is; views kept from an
 * earlier use may be passed again and are refreshed. timeout_ms as for f8_wait.
 */
F8_API int f8_post_gather(struct f8_group *group, uint32_t bucket, int timeout_ms,
    struct f8_view *views, uint32_t num_views, void *stream);

/* Whether a gather is done, without waiting; f8_post_gather must still be called. */
F8_API int f8_gather_test(struct f8_group *group, uint32_t bucket, int *ret_done);

/* F8_OK while the view may be read, F8_ESTALE once its bucket was released or gathered anew. */
F8_API int f8_view_check(struct f8_group *group, const struct f8_view *view);

/*
 * Gives a gathered bucket back. Never blocks (but see poison, and reconnect_ms: it waits for
 * another thread that looks for a daemon); allowed from finalizers and after a failure.
 *
 * Shared slots: all ranks should release in the same order relative to their gathers. A slot is
 * free when every rank has released it; if one rank still holds bucket A and another still holds
 * B, the next gather of a shared bucket waits for one of them, and if they in turn wait for that
 * gather, it fails at its deadline.
 *
 * F8_EORDER: the bucket is not held by this rank (released twice, or not waited for). After F8_EIO,
 * such as for a stream that there is not, it is still held.
 */
F8_API int f8_release(struct f8_group *group, uint32_t bucket, void *stream);

/*
 * Says that the values of `count` weights from index `first` on have changed (after the optimizer
 * step, or a reload). Ranks must agree on the number of changes; a scale that was precomputed
 * before a change is counted and shown as stale when used. F8_EBUSY names what has not been waited
 * for: a gather of a weight's bucket, or a precompute of its amax group.
 */
F8_API int f8_changed(struct f8_group *group, uint32_t first, uint32_t count);

/*
 * Waits until all requests of this rank to the group have ended: the daemon reads none of its
 * shards any more, for this group. A precompute of another amax group is waited for by its ticket.
 */
F8_API int f8_quiesce(struct f8_group *group, int timeout_ms);

/*
 * This rank's shard of the weight lies elsewhere from now on; no new seal is needed. F8_EBUSY
 * while a request on it is open. Counts as no change of values (see f8_changed).
 */
F8_API int f8_weight_move(
    struct f8_group *group, uint32_t weight, const struct f8_region *region, uint64_t offset);

/* Bytes that f8_copy_out of this bucket needs. */
F8_API int f8_copy_size(
    struct f8_group *group, uint32_t bucket, enum f8_layout layout, uint64_t *ret_size);

/*
 * Copies a held bucket into the caller's memory of `size` bytes. F8_EORDER if it is not held. On a
 * device dst is device memory, and the copies are put on `stream`.
 */
F8_API int f8_copy_out(struct f8_group *group, uint32_t bucket, enum f8_layout layout, void *dst,
    uint64_t size, void *stream);

/* Messages of this client since f8_connect, and its gathers: for benchmarks. */
struct f8_traffic {
    uint64_t sent;     /* messages */
    uint64_t received; /* messages */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t gathers; /* completed */
};
F8_API int f8_traffic_read(struct f8_client *client, struct f8_traffic *ret_traffic);

#ifdef __cplusplus
}
#endif

#endif
