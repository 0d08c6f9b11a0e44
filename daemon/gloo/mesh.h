/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of this host's helper to those of all other hosts: a Gloo context with one pair a
 * host, and the memory that is sent from and received into. Used by the engine on the main thread;
 * Gloo moves the bytes on a thread of its own.
 */
#ifndef F8_DAEMON_GLOO_MESH_H
#define F8_DAEMON_GLOO_MESH_H

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/context.h>

extern "C" {
#include "daemon/fabric_wire.h"
}
#include "alarm.h"

using Address = std::vector<char>;
using Token = std::array<char, 16>;

/* A host, as its daemon and the world call it. */
struct Peer {
    std::string name;
    Address address;
};

class Mesh
{
  public:
    /* Listens for each other host, at the address given only. Throws if it is not of this host. */
    explicit Mesh(const fabric_open &open);

    /* What the other hosts need to connect: where this one listens for each, with which token. */
    Address address() const;

    /*
     * Blocks until all are connected, and have shown that they know the token for them. Where there
     * is no way to a host it is tried again, as long as there is time.
     */
    void connect(const std::vector<Peer> &peers);

    /*
     * A group has the mesh, as it has from the start, or none: it is kept for another, nobody looks
     * whether hosts are silent for a while, and it throws if a connection is broken already.
     */
    void begin_use();
    void end_use();

    /* A command that the daemon ends after its deadline. It knows less of why, so what waits here
     * fails somewhat earlier, and names whom it waits for. */
    void begin(uint64_t deadline_ms);

    /* "host gpu-07 (10.0.0.7)"; "host 3" before it is known. */
    const std::string &name(uint32_t host) const
    {
        return names_[host];
    }
    std::string name_with_pid(uint32_t host) const;

    const uint32_t hosts, here;
    uint64_t sent = 0, received = 0; /* bytes */

  private:
    friend class Memory;

    void take_names(const std::vector<Peer> &peers);
    bool connect_in_time(uint32_t host, const std::vector<char> &at);
    void reach(uint32_t host, const Address &address);
    void connect_pair(uint32_t host, const Address &address);
    void exchange_tokens(const std::vector<Peer> &peers);
    [[noreturn]] void throw_late(const std::vector<uint32_t> &awaited) const;

    const std::string interface_;
    const std::chrono::milliseconds silence_;
    std::vector<std::string> names_; /* by host */
    std::vector<uint32_t> pids_;     /* by host: of its helper, there */
    std::vector<Token> tokens_;      /* by host: what it must show */
    std::shared_ptr<gloo::transport::Context> context_;
    Alarm alarm_;
};

/*
 * Bytes that are sent and received. Transfers with one host match by slot and, within one slot, in
 * the order in which they were posted; those that match are of the same size, or a received one is
 * smaller than what was posted for it: a larger one ends the process.
 */
class Memory
{
  public:
    /* `data` is borrowed for as long as this lives. */
    Memory(Mesh &mesh, void *data, size_t size);

    void send(uint32_t host, uint64_t slot, size_t offset, size_t size);
    void receive(uint32_t host, uint64_t slot, size_t offset, size_t size);

    /* Until all that was posted is done. Throws as soon as the connection to a host breaks, or when
     * the time for the command is over. */
    void wait();

  private:
    /* Gloo tells that a transfer has ended, not which: so each host has a buffer of its own. */
    struct Line {
        std::unique_ptr<gloo::transport::UnboundBuffer>
            buffer;                     /* of all that is sent and received */
        size_t sends = 0, receives = 0; /* posted and not waited for */
    };

    static bool has_ended(Line &line, std::chrono::milliseconds patience);
    void await(uint32_t host);
    [[noreturn]] void throw_late(uint32_t first);
    [[noreturn]] void throw_lost(const gloo::Exception &error);

    Mesh &mesh_;
    std::vector<Line> lines_; /* by host */
};

#endif
