/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the kernel for all Unix sockets: see owner.h. They are told apart by the file that they are
 * bound to, not by the name that they gave: /proc/net/unix has names only, and containers that
 * share a network have sockets of one name in different places.
 */
#include "daemon/owner.h"

#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* More than the kernel puts into one packet. */
#define PACKET_BYTES 32768

/* How the kernel writes a device's number, which is not how stat() does. */
#define KERNEL_MINOR_BITS 20

/* What is looked for. */
struct file {
    const char *path; /* borrowed */
    uint32_t inode, device;
    bool is_by_name; /* its file system has another number of its device inside than stat() gives */
};

/*
 * Elsewhere the device decides: each tmpfs numbers its files from the same one on, so that nothing
 * else tells two containers' sockets of one name apart.
 */
static bool hides_device(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 &&
           (fs.f_type == OVERLAYFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC);
}

static bool ask(int fd)
{
    struct {
        struct nlmsghdr head;
        struct unix_diag_req body;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = AF_UNIX,
            .udiag_states = UINT32_MAX,
            .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS},
    };
    return send(fd, &request, sizeof(request), 0) == sizeof(request);
}

static bool is_bound_to(const struct nlmsghdr *message, const struct file *file)
{
    const struct unix_diag_msg *socket = NLMSG_DATA(message);
    size_t left = message->nlmsg_len - NLMSG_LENGTH(sizeof(*socket)), name_size = 0;
    const char *name = NULL;
    struct unix_diag_vfs vfs = {0};
    const struct rtattr *attribute = (const struct rtattr *)(socket + 1);
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        if (attribute->rta_type == UNIX_DIAG_VFS && RTA_PAYLOAD(attribute) >= sizeof(vfs))
            memcpy(&vfs, RTA_DATA(attribute), sizeof(vfs));
        if (attribute->rta_type == UNIX_DIAG_NAME) {
            name = RTA_DATA(attribute);
            name_size = RTA_PAYLOAD(attribute);
        }
    }
    if (vfs.udiag_vfs_ino != file->inode)
        return false;
    size_t length = name ? strnlen(name, name_size) : 0;
    return vfs.udiag_vfs_dev == file->device || (file->is_by_name && length == strlen(file->path) &&
                                                    memcmp(name, file->path, length) == 0);
}

/* One packet of the answer: whether it has the file; *ret_more: whether others follow. */
static bool look(const char *packet, size_t size, const struct file *file, bool *ret_more)
{
    const struct nlmsghdr *message = (const struct nlmsghdr *)(const void *)packet;
    *ret_more = true;
    for (; NLMSG_OK(message, size); message = NLMSG_NEXT(message, size)) {
        if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) {
            *ret_more = false;
            return false;
        }
        if (message->nlmsg_len >= NLMSG_LENGTH(sizeof(struct unix_diag_msg)) &&
            is_bound_to(message, file))
            return true;
    }
    return false;
}

bool owner_lives(const char *path)
{
    union {
        struct nlmsghdr aligned;
        char bytes[PACKET_BYTES];
    } packet;
    struct stat st;
    if (lstat(path, &st) < 0)
        return false;
    struct file file = {.path = path,
        .inode = (uint32_t)st.st_ino,
        .device = (uint32_t)(major(st.st_dev) << KERNEL_MINOR_BITS | minor(st.st_dev)),
        .is_by_name = hides_device(path)};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool more = fd >= 0 && ask(fd), found = false;
    while (more && !found) {
        /* What there is to say is there at once, so an empty queue is the end as well. */
        ssize_t size = recv(fd, packet.bytes, sizeof(packet.bytes), MSG_DONTWAIT);
        more = size > 0;
        if (more)
            found = look(packet.bytes, (size_t)size, &file, &more);
    }
    if (fd >= 0)
        (void)close(fd);
    return found;
}
