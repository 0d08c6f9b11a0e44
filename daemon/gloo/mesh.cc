/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: see mesh.h. Gloo has a listening socket for each pair and takes whoever comes first,
 * so what comes must show a token that only the daemons of the group were told before a byte of it
 * reaches an arena. Deadlines are the daemon's: nothing here waits for a limited time.
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

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include "failure.h"

using gloo::transport::tcp::CreateDevice;
using TcpAddress = gloo::transport::tcp::Address;

namespace
{
/* Where a host listens for another, and what that one must show: one by host makes an address. */
struct Door {
    sockaddr_in6 at; /* or a sockaddr_in at its start */
    Token token;
};

/* As good as for ever: Gloo adds it to the time of day in nanoseconds. */
constexpr auto NO_LIMIT = std::chrono::hours(24 * 365);

/* Nothing is ever sent there: see Memory. */
constexpr uint64_t WATCH_SLOT = UINT64_MAX;

constexpr uint64_t TOKEN_SLOT = UINT64_MAX - 1;

constexpr auto PAUSE = std::chrono::milliseconds(100); /* between attempts to reach a host */
constexpr auto AHEAD = std::chrono::milliseconds(500);

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
    : hosts(open.hosts), here(open.here), interface_(open.interface), names_(open.hosts),
      tokens_(open.hosts), context_(listen(open))
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
    }
}

void Mesh::connect(const std::vector<Peer> &peers, std::chrono::milliseconds limit)
{
    /* Before the daemon ends it, which knows less of why. */
    Time end = std::chrono::steady_clock::now() + limit - std::min(limit / 4, AHEAD);
    take_names(peers);
    /* In the same order everywhere, so that no circle of hosts waits for one another. */
    for (uint32_t host = 0; host < hosts; host++)
        if (host != here)
            connect_pair(host, peers[host].address, end);
    exchange_tokens(peers);
}

/*
 * A pair that has failed fails for ever, so each attempt has another. The other host, which waits
 * for whoever comes, has seen nothing of the attempts before. Whether this end waits for the other
 * depends on both addresses; of one host's own, where the ports decide, the new one might.
 */
void Mesh::reach(uint32_t host, const Address &address, Time end)
{
    sockaddr_storage at = {};
    Door door = door_of(address, here);
    memcpy(&at, &door.at, sizeof(door.at));
    for (;;) {
        gloo::transport::Pair &pair = *context_->getPair(static_cast<int>(host));
        sockaddr_storage own = socket_address(pair);
        try {
            pair.connect(TcpAddress(at).bytes());
            return;
        } catch (const gloo::Exception &error) {
            bool again = is_passing(error) && std::chrono::steady_clock::now() < end &&
                         !is_same(reinterpret_cast<const sockaddr *>(&own),
                             reinterpret_cast<const sockaddr *>(&at));
            if (!again)
                throw Failure(
                    F8_EIO, "the engine cannot connect to " + name(host) + ": " + sentence(error));
        }
        std::this_thread::sleep_for(PAUSE);
        context_->createPair(static_cast<int>(host));
    }
}

/* Gloo binds only what listens: where the routes lead elsewhere, that is found here. */
void Mesh::connect_pair(uint32_t host, const Address &address, Time end)
{
    sockaddr_storage chosen = socket_address(*context_->getPair(static_cast<int>(host)));
    reach(host, address, end);
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
 * When a connection breaks, Gloo wakes those whose transfers have not begun, but not one whose last
 * transfer is half done. So each memory has a receive posted that never begins.
 */
Memory::Memory(Mesh &mesh, void *data, size_t size)
    : mesh_(mesh), buffer_(mesh.context_->createUnboundBuffer(data, size))
{
    for (uint32_t host = 0; host < mesh_.hosts; host++)
        if (host != mesh_.here)
            buffer_->recv(static_cast<int>(host), WATCH_SLOT, 0, 0);
}

/* Which hosts: those that take nothing any more. More than one is where one fell over another. */
void Memory::throw_lost(const gloo::Exception &error)
{
    std::string lost;
    for (uint32_t host = 0; host < mesh_.hosts; host++) {
        try {
            if (host != mesh_.here)
                buffer_->recv(static_cast<int>(host), WATCH_SLOT, 0, 0);
        } catch (const gloo::Exception &) {
            lost += (lost.empty() ? " to " : " and ") + mesh_.name(host);
        }
    }
    throw Failure(F8_ECONN, "the engine lost its connection" + lost + ": " + sentence(error));
}

void Memory::send(uint32_t host, uint64_t slot, size_t offset, size_t size)
{
    try {
        buffer_->send(static_cast<int>(host), slot, offset, size);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
    sends_++;
    mesh_.sent += size;
}

void Memory::receive(uint32_t host, uint64_t slot, size_t offset, size_t size)
{
    try {
        buffer_->recv(static_cast<int>(host), slot, offset, size);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
    receives_++;
    mesh_.received += size;
}

void Memory::wait()
{
    try {
        for (; receives_ > 0; receives_--)
            buffer_->waitRecv(NO_LIMIT);
        for (; sends_ > 0; sends_--)
            buffer_->waitSend(NO_LIMIT);
    } catch (const gloo::Exception &error) {
        throw_lost(error);
    }
}
