/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a socket, by the kernel's word: uid, pid, and a pidfd that tells of
 * its death. Used by conn.
 */
#ifndef F8_DAEMON_PEER_H
#define F8_DAEMON_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/config.h"

struct peer {
    uid_t uid;
    gid_t gid;
    uint32_t pid;
    int pidfd; /* owned; -1 where the kernel or a pid namespace does not give one */
};

/*
 * Reads the credentials of a connected socket. F8_ECONN if the process is gone already, F8_ELIMIT
 * if there is no descriptor left to watch it with.
 */
int peer_identify(struct peer *peer, int socket);

/* Closes the pidfd. */
void peer_done(struct peer *peer);

/* Whether the process has ended or is ending: a closed socket then means death, not a farewell. */
bool peer_is_dying(const struct peer *peer);

/* Root, the daemon's own uid, or a member of the configured group. */
bool peer_is_admin(const struct peer *peer, int socket, const struct config *config);

#endif
