/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: see mesh.h. Gloo has a listening socket for each pair and takes whoever comes first,
 * so what comes must show a token that only the daemons of the group were told before a byte of it
 * reaches an arena. Gloo's own limits are not used: they break all connections.
 */
#include "mesh.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <thread>
#include <unistd.h>

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include "failure.h"
#include "silence.h"

using gloo::transport::tcp::CreateDevice;
using TcpAddress = gloo::transport::tcp::Address;

namespace
{
/* Where a host listens for another, and what that one must show: one by host makes an address. */
struct Door {
    sockaddr_in6 at; /* or a sockaddr_in at its start */
    Token token;
    uint32_t pid; /* of the helper that listens */
};

/* As good as for ever: Gloo adds it to the time of day in nanoseconds. */
constexpr auto NO_LIMIT = std::chrono::hours(24 * 365);

constexpr uint64_t TOKEN_SLOT = UINT64_MAX;

/* Nothing is ever sent there: see Memory. */
uint64_t watch_slot(uint32_t host)
{
    return TOKEN_SLOT - 1 - host;
}

constexpr auto PAUSE = std::chrono::milliseconds(100); /* between attempts to reach a host */
constexpr auto AHEAD = std::chrono::milliseconds(300); /* of the daemon */
constexpr auto SOON = std::chrono::milliseconds(50);   /* as good as late */
constexpr size_t MAX_AWAITED = 4;                      /* names in one sentence */

Door door_of(const Address &address, uint32_t host)
{
    Door door;
    memcpy(&door, address.data() + host * sizeof(door), sizeof(door));
    return door;
}

sockaddr_storage socket_address(gloo::transport::Pair &pair)
{
    return dynamic_cast<const TcpAddress &>(pair.address()).getSockaddr();
}

bool is_same(const sockaddr *a, const sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&reinterpret_cast<const sockaddr_in *>(a)->sin_addr,
                   &reinterpret_cast<const sockaddr_in *>(b)->sin_addr, sizeof(in_addr)) == 0;
    return a->sa_family == AF_INET6 &&
           memcmp(&reinterpret_cast<const sockaddr_in6 *>(a)->sin6_addr,
               &reinterpret_cast<const sockaddr_in6 *>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

/* The address without its port. */
std::string text_of(const Door &door)
{
    char text[INET6_ADDRSTRLEN] = "?";
    auto in = reinterpret_cast<const sockaddr_in *>(&door.at);
    if (door.at.sin6_family == AF_INET)
        (void)inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    else
        (void)inet_ntop(AF_INET6, &door.at.sin6_addr, text, sizeof(text));
    return text;
}

/* Whether there was no way, as when a link has just come up. Gloo tells errors as text only. */
bool is_passing(const gloo::Exception &error)
{
    for (int number : {EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN, ETIMEDOUT})
        if (strstr(error.what(), strerror(number)))
            return true;
    return false;
}

/* Whether the other end has ended a connection, or ended itself: Gloo's words, and the kernel's. */
bool is_ended_there(const gloo::Exception &error)
{
    return strstr(error.what(), "closed") || strstr(error.what(), strerror(ECONNRESET)) ||
           strstr(error.what(), strerror(EPIPE));
}

bool has_address(const std::string &interface, const sockaddr *address)
{
    ifaddrs *list;
    if (getifaddrs(&list) < 0)
        throw Failure(F8_EIO, std::string("cannot list the interfaces: ") + strerror(errno));
    bool found = false;
    for (const ifaddrs *one = list; one && !found; one = one->ifa_next)
        found = interface == one->ifa_name && is_same(one->ifa_addr, address);
    freeifaddrs(list);
    return found;
}

/* Gloo would resolve names, and go wrong where one does not resolve. */
void check_numeric(const std::string &address)
{
    in6_addr unused;
    if (inet_pton(AF_INET, address.c_str(), &unused) != 1 &&
        inet_pton(AF_INET6, address.c_str(), &unused) != 1)
        throw Failure(F8_EINVAL, "\"" + address + "\" is no address that hosts can connect at");
}

std::shared_ptr<gloo::transport::Context> listen(const fabric_open &open)
{
    check_numeric(open.address);
    gloo::transport::tcp::attr attributes(open.address);
    auto context = CreateDevice(attributes)
                       ->createContext(static_cast<int>(open.here), static_cast<int>(open.hosts));
    context->setTimeout(gloo::kNoTimeout);
    for (uint32_t host = 0; host < open.hosts; host++)
        if (host != open.here)
            context->createPair(static_cast<int>(host));
    return context;
}
} // namespace

Mesh::Mesh(const fabric_open &open)
    : hosts(open.hosts), here(open.here), interface_(open.interface), silence_(open.silence_ms),
      names_(open.hosts), pids_(open.hosts), tokens_(open.hosts), context_(listen(open))
{
    for (uint32_t host = 0; host < hosts; host++)
        names_[host] = "host " + std::to_string(host);
    size_t size = tokens_.size() * sizeof(Token);
    if (getrandom(tokens_.data(), size, 0) != static_cast<ssize_t>(size))
        throw Failure(F8_EIO, std::string("no random bytes: ") + strerror(errno));
}

Address Mesh::address() const
{
    Address address(hosts * sizeof(Door));
    for (uint32_t host = 0; host < hosts; host++) {
        Door door = {};
        if (host == here)
            continue;
        sockaddr_storage at = socket_address(*context_->getPair(static_cast<int>(host)));
        memcpy(&door.at, &at, sizeof(door.at));
        door.token = tokens_[host];
        door.pid = static_cast<uint32_t>(getpid());
        memcpy(address.data() + host * sizeof(door), &door, sizeof(door));
    }
    return address;
}

void Mesh::take_names(const std::vector<Peer> &peers)
{
    for (uint32_t host = 0; host < hosts; host++) {
        if (peers[host].address.size() != hosts * sizeof(Door))
            throw Failure(F8_EMISMATCH,
                "the engine of host " + peers[host].name + " gave an address of " +
                    std::to_string(peers[host].address.size()) + " bytes, not of " +
                    std::to_string(hosts * sizeof(Door)) + ": it is of another version");
        /* Where it listens for any other: one place is empty, its own. */
        Door door = door_of(peers[host].address, host == here ? (here + 1) % hosts : here);
        if (hosts > 1)
            names_[host] = "host " + peers[host].name + " (" + text_of(door) + ")";
        pids_[host] = door.pid;
    }
}

void Mesh::begin(uint64_t deadline_ms)
{
    auto deadline = std::min(std::chrono::milliseconds(NO_LIMIT),
        std::chrono::milliseconds(std::min<uint64_t>(deadline_ms, INT64_MAX)));
    alarm_.set(deadline - std::min(deadline / 4, AHEAD));
}

std::string Mesh::name_with_pid(uint32_t host) const
{
    return name(host) + ", whose engine is pid " + std::to_string(pids_[host]);
}

void Mesh::throw_late(const std::vector<uint32_t> &awaited) const
{
    std::string text =
        "the engine waited for " + std::to_string(alarm_.limit().count()) + " ms in vain for ";
    for (size_t i = 0; i < awaited.size() && i < MAX_AWAITED; i++)
        text += (i > 0 ? " and " : "") + name_with_pid(awaited[i]);
    if (awaited.size() > MAX_AWAITED)
        text += " and " + std::to_string(awaited.size() - MAX_AWAITED) + " more";
    throw Failure(F8_EDEADLINE, text);
}

void Mesh::connect(const std::vector<Peer> &peers)
{
    take_names(peers);
    /* In the same order everywhere, so that no circle of hosts waits for one another. */
    for (uint32_t host = 0; host < hosts; host++)
        if (host != here)
            connect_pair(host, peers[host].address);
    begin_use();
    exchange_tokens(peers);
}

void Mesh::begin_use()
{
    break_silent_connections(silence_);
}

void Mesh::end_use()
{
    char unused;
    Memory(*this, &unused, sizeof(unused)); /* to see whether all are there */
    break_silent_connections(std::chrono::milliseconds(0));
}

/* False: not in time. A pair that is closed meanwhile has, to Gloo, been connected. */
bool Mesh::connect_in_time(uint32_t host, const std::vector<char> &at)
{
    gloo::transport::Pair &pair = *context_->getPair(static_cast<int>(host));
    if (!alarm_.is_over()) {
        Alarm::Wait wait(alarm_, [&pair] { pair.close(); });
        pair.connect(at);
    }
    return !alarm_.is_over();
}

/*
 * A pair that has failed fails for ever, so each attempt has another. The other host, which waits
 * for whoever comes, has seen nothing of the attempts before. Whether this end waits for the other
 * depends on both addresses; of one host's own, where the ports decide, the new one might.
 */
void Mesh::reach(uint32_t host, const Address &address)
{
    sockaddr_storage at = {};
    Door door = door_of(address, here);
    memcpy(&at, &door.at, sizeof(door.at));
    std::string met;
    for (;;) {
        sockaddr_storage own = socket_address(*context_->getPair(static_cast<int>(host)));
        bool again = !is_same(
            reinterpret_cast<const sockaddr *>(&own), reinterpret_cast<const sockaddr *>(&at));
        try {
            if (connect_in_time(host, TcpAddress(at).bytes()))
                return;
            if (met.empty())
                throw_late({host});
            again = false;
        } catch (const gloo::Exception &error) {
            met = sentence(error);
            again = again && is_passing(error);
        }
        if (!again)
            throw Failure(F8_EIO, "the engine cannot connect to " + name(host) + ": " + met);
        std::this_thread::sleep_for(PAUSE);
        context_->createPair(static_cast<int>(host));
    }
}

/* Gloo binds only what listens: where the routes lead elsewhere, that is found here. */
void Mesh::connect_pair(uint32_t host, const Address &address)
{
    sockaddr_storage chosen = socket_address(*context_->getPair(static_cast<int>(host)));
    reach(host, address);
    gloo::transport::Pair &pair = *context_->getPair(static_cast<int>(host));
    sockaddr_storage used = socket_address(pair);
    auto from = reinterpret_cast<const sockaddr *>(&used);
    if (!is_same(from, reinterpret_cast<const sockaddr *>(&chosen)) &&
        !has_address(interface_, from))
        throw Failure(F8_EIO, "the way to " + name(host) + " leads over " + pair.address().str() +
                                  ", which is no address of the interface " + interface_ +
                                  ": see its routes");
}

void Mesh::exchange_tokens(const std::vector<Peer> &peers)
{
    std::vector<Token> tokens(2 * hosts); /* what to show, then what is shown */
    for (uint32_t host = 0; host < hosts; host++)
        tokens[host] = door_of(peers[host].address, here).token;
    Memory memory(*this, tokens.data(), tokens.size() * sizeof(Token));
    for (uint32_t host = 0; host < hosts; host++) {
        if (host == here)
            continue;
        memory.receive(host, TOKEN_SLOT, (hosts + host) * sizeof(Token), sizeof(Token));
        memory.send(host, TOKEN_SLOT, host * sizeof(Token), sizeof(Token));
    }
    memory.wait();
    for (uint32_t host = 0; host < hosts; host++)
        if (host != here && tokens[hosts + host] != tokens_[host])
            throw Failure(F8_EPERM, "what connected as " + name(host) +
                                        " does not know the token that its daemon was told");
    sent = received = 0;
}

/*
 * When a connection breaks, Gloo wakes those whose transfers with it have not begun, but not one
 * whose last transfer is half done, nor one that waits for another host. So each line has a receive
 * posted with every host that never begins.
 */
Memory::Memory(Mesh &mesh, void *data, size_t size) : mesh_(mesh), lines_(mesh.hosts)
{
    for (Line &line : lines_)
        line.buffer = mesh.context_->createUnboundBuffer(data, size);
    try {
        for (uint32_t line = 0; line < mesh_.hosts; line++)
            for (uint32_t host = 0; host < mesh_.hosts && line != mesh_.here; host++)
                if (host != mesh_.here)
                    lines_[line].buffer->recv(static_cast<int>(host), watch_slot(line), 0, 0);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
}

/* Which hosts: those that take nothing any more. More than one is where one fell over another. Of
 * one that was not heard of nobody else may know; one that has ended may have had a reason. */
void Memory::throw_lost(const gloo::Exception &error)
{
    bool is_ended = is_ended_there(error);
    std::string lost;
    for (uint32_t host = 0; host < mesh_.hosts; host++) {
        try {
            if (host != mesh_.here)
                lines_[host].buffer->recv(static_cast<int>(host), watch_slot(host), 0, 0);
        } catch (const gloo::Exception &) {
            lost += lost.empty() ? " to " : " and ";
            lost += is_ended ? mesh_.name(host) : mesh_.name_with_pid(host);
        }
    }
    throw Failure(is_ended ? F8_ECONN : F8_EIO,
        "the engine lost its connection" + lost + ": " + sentence(error));
}

void Memory::send(uint32_t host, uint64_t slot, size_t offset, size_t size)
{
    try {
        lines_[host].buffer->send(static_cast<int>(host), slot, offset, size);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
    lines_[host].sends++;
    mesh_.sent += size;
}

void Memory::receive(uint32_t host, uint64_t slot, size_t offset, size_t size)
{
    try {
        lines_[host].buffer->recv(static_cast<int>(host), slot, offset, size);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
    lines_[host].receives++;
    mesh_.received += size;
}

/* Whether all that was posted is done; false when patience is over, or the wait was interrupted. */
bool Memory::has_ended(Line &line, std::chrono::milliseconds patience)
{
    for (; line.receives > 0; line.receives--)
        if (!line.buffer->waitRecv(patience))
            return false;
    for (; line.sends > 0; line.sends--)
        if (!line.buffer->waitSend(patience))
            return false;
    return true;
}

/* Once Gloo has been told of any limit it breaks all connections; what had ended before is told. */
void Memory::throw_late(uint32_t first)
{
    std::vector<uint32_t> awaited = {first};
    for (uint32_t host = first + 1; host < mesh_.hosts; host++) {
        try {
            if (!has_ended(lines_[host], std::chrono::milliseconds(0)))
                awaited.push_back(host);
        } catch (const gloo::Exception &) {
            awaited.push_back(host);
        }
    }
    mesh_.throw_late(awaited);
}

void Memory::await(uint32_t host)
{
    Line &line = lines_[host];
    Alarm::Wait wait(mesh_.alarm_, [&line] {
        line.buffer->abortWaitRecv();
        line.buffer->abortWaitSend();
    });
    while (!has_ended(line, NO_LIMIT))
        if (mesh_.alarm_.is_over()) /* else it is of a command before, which was done just then */
            throw_late(host);
}

void Memory::wait()
{
    uint32_t host = 0;
    try {
        for (; host < mesh_.hosts; host++)
            if (host != mesh_.here)
                await(host);
    } catch (const gloo::Exception &error) {
        /* A peer that was late, too, but a moment earlier, knows no more than this one. */
        if (is_ended_there(error) && mesh_.alarm_.is_over(SOON))
            throw_late(host);
        throw_lost(error);
    }
}
