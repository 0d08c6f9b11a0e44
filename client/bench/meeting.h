/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the f8benches of several machines run as one: host 0 waits for the others, compares their
 * settings with its own, brings all ranks together where they must be, collects the reports, and
 * tells all when one has failed. Everything here is called by the parent, in its only thread.
 */
#ifndef F8BENCH_MEETING_H
#define F8BENCH_MEETING_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/bench/link.h"
#include "client/bench/options.h"

/* How near a failure is to the cause: of several the nearest is told. */
enum nearness {
    NEAR_NOTHING,
    NEAR_HEARD, /* a rank was told of another's end */
    NEAR_ERROR, /* of a rank */
    NEAR_GONE,  /* a process, or a host, that ended without saying why */
    NEAR_DEATH, /* by a signal; or a daemon's */
};

/* The name of a job, with its end. */
#define MEETING_JOB_SIZE 64

/* Bytes that are joined at most: unique ids of all groups, or the addresses of all hosts. */
#define MEETING_MAX_JOINED (1 << 17)

/* Descriptors that it has polled at most. */
#define MEETING_MAX_FDS (NETWORK_MAX_HOSTS + 1)

struct meeting {
    const struct options *options; /* borrowed: from main */
    uint32_t host, num_hosts;
    struct link links[NETWORK_MAX_HOSTS]; /* owned: host 0 has one to each other host; all others
                                             have the first, to host 0 */
    int fd, ranks_fd;                     /* owned: two ends, of the parent and of this host's
                                             first rank */
    char job[MEETING_JOB_SIZE];
    double since;                    /* when the first came that is still waited with; 0: none */
    uint64_t size;                   /* of what is joined: */
    uint8_t *joined;                 /* owned */
    bool arrived[NETWORK_MAX_HOSTS]; /* who has come to this meeting; host 0 alone knows */
    uint64_t report_size;            /* the most that a report may have */
    bool reported[NETWORK_MAX_HOSTS];
    bool answered[NETWORK_MAX_HOSTS]; /* by link: it is there, as this host has failed and asked */
    bool left;                        /* all reports are there: the hosts part */
    uint32_t mismatches;              /* what host 0 says then */
    /* On host 0: a report has come. -1 with the reason: it is none. */
    int (*on_report)(
        void *context, uint32_t host, const struct link_message *report, struct bench_error *error);
    void *context; /* borrowed: from run_far.c, for on_report */
};

/* Why a run of several hosts has failed. */
struct failure {
    enum nearness nearness;
    bool foreign; /* another host's: the text says whose */
    bool final;   /* host 0 has said it to all */
    struct bench_error error;
};

/*
 * Waits until all hosts are there, as long as --deadline says, or until signal_fd is readable.
 * Whoever else connects to host 0, or has other settings, is refused, and told on standard error.
 * -1 with the reason; nothing of it is left then.
 */
int meeting_open(const struct options *options, const char *settings, int signal_fd,
    struct meeting **ret_meeting, struct bench_error *error);

/* NULL is fine. */
void meeting_close(struct meeting *meeting);

/* "host 1 (10.0.0.2)" */
void meeting_name(const struct options *options, uint32_t host, char *name, size_t size);

/* Lists what is to be polled, MEETING_MAX_FDS at most; and how long, -1: for ever. */
nfds_t meeting_list(const struct meeting *meeting, struct pollfd *fds);
nfds_t meeting_list_links(const struct meeting *meeting, struct pollfd *fds); /* to other hosts */
int meeting_timeout(const struct meeting *meeting);

/* Takes what has come, after each poll. -1: the run has failed. */
int meeting_handle(struct meeting *meeting, struct failure *failure);

/*
 * This host's ranks are through: its report, or on host 0 none. Once all are, `left` is set on
 * all hosts, with whether there were `mismatches`, which on host 0 on_report must keep up to date.
 */
int meeting_report(
    struct meeting *meeting, const void *report, uint64_t size, struct failure *failure);

/*
 * This host has failed: tells the others, and waits a moment for whoever is nearer to the cause,
 * whose text the failure has then. It names the hosts of which nothing is heard meanwhile, too:
 * ranks and daemons that wait for a host in vain do not know which of the list it is.
 */
void meeting_fail(struct meeting *meeting, struct failure *failure);

/*
 * In the first rank of each host: waits until those of all hosts are here, and joins their bytes
 * by "or". -1: the parent is gone.
 */
int meeting_meet(int ranks_fd, void *bytes, size_t size);

#endif
