/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Silence on the helper's connections: see silence.h. The user timeout bounds what has been sent
 * and is not acknowledged; of a connection on which this end only waits it takes the probes of
 * keepalive to know.
 */
#include "silence.h"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace
{
bool is_connection(int fd)
{
    sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    return getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &size) == 0 &&
           (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void break_silent_connection(int fd, int limit_ms)
{
    int pause_s = std::max(1, limit_ms / 8000); /* keepalive counts seconds */
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, limit_ms);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, pause_s);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, pause_s);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, limit_ms > 0);
}
} // namespace

void break_silent_connections(std::chrono::milliseconds limit)
{
    DIR *descriptors = opendir("/proc/self/fd");
    if (!descriptors)
        return;
    for (const dirent *entry; (entry = readdir(descriptors)) != nullptr;) {
        int fd = static_cast<int>(strtol(entry->d_name, nullptr, 10));
        if (entry->d_name[0] != '.' && is_connection(fd))
            break_silent_connection(fd, static_cast<int>(limit.count()));
    }
    (void)closedir(descriptors);
}
