/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands: see engine.h. The daemon gives them in the right order and the same on all hosts;
 * what could reach outside of the arena or the mesh is looked at nevertheless.
 */
#include "engine.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
#include "daemon/mapping.h"
}
#include "failure.h"

namespace
{
/* Takes what comes next in a payload: bytes after their size. */
std::vector<char> take_sized(const char *&at)
{
    uint32_t size;
    memcpy(&size, at, sizeof(size));
    std::vector<char> bytes(at + sizeof(size), at + sizeof(size) + size);
    at += sizeof(size) + size;
    return bytes;
}

std::vector<Peer> split_peers(const std::vector<char> &payload, uint32_t count)
{
    std::vector<Peer> peers(count);
    const char *at = payload.data();
    for (Peer &peer : peers) {
        std::vector<char> name = take_sized(at);
        peer.name.assign(name.begin(), name.end());
        peer.address = take_sized(at);
    }
    return peers;
}

bool touches(const fabric_span &before, const fabric_span &span)
{
    return before.host == span.host && before.offset + before.size == span.offset;
}

/* Neighbours become one: each span costs Gloo three messages with each host. */
std::vector<fabric_span> join_spans(const std::vector<char> &payload)
{
    std::vector<fabric_span> spans(payload.size() / sizeof(fabric_span));
    if (spans.empty())
        return spans;
    memcpy(spans.data(), payload.data(), payload.size());
    size_t last = 0;
    for (size_t i = 1; i < spans.size(); i++) {
        if (touches(spans[last], spans[i]))
            spans[last].size += spans[i].size;
        else
            spans[++last] = spans[i];
    }
    spans.resize(last + 1);
    return spans;
}

void check_span(const fabric_span &span, uint32_t hosts, uint64_t size)
{
    if (span.host >= hosts || span.offset > size || span.size > size - span.offset)
        throw Failure(F8_EINTERNAL, "bytes " + std::to_string(span.offset) + " to " +
                                        std::to_string(span.offset + span.size) + " of host " +
                                        std::to_string(span.host) + " are not in an arena of " +
                                        std::to_string(size) + " bytes over " +
                                        std::to_string(hosts) + " hosts");
}
} // namespace

void Engine::open(std::vector<char> &payload)
{
    fabric_open open;
    if (payload.size() != sizeof(open))
        throw Failure(F8_EMISMATCH,
            "the engine is of another version than this daemon, which runs since before an "
            "upgrade: restart f8gatherd");
    memcpy(&open, payload.data(), sizeof(open));
    mesh_ = std::make_unique<Mesh>(open);
    const uint64_t version = FABRIC_VERSION;
    Address address = mesh_->address();
    payload.resize(sizeof(version));
    memcpy(payload.data(), &version, sizeof(version));
    payload.insert(payload.end(), address.begin(), address.end());
}

void Engine::connect(std::vector<char> &payload)
{
    mesh_->connect(split_peers(payload, mesh_->hosts));
    reducer_ = std::make_unique<Reducer>(*mesh_);
    payload.clear();
}

void Engine::map(int fd, uint64_t size)
{
    memory_.reset();
    if (arena_)
        (void)munmap(arena_, arena_size_);
    arena_ = nullptr;
    arena_size_ = 0;
    if (size == 0) {
        mesh_->end_use();
        return;
    }
    mesh_->begin_use();
    arena_ = mapping_create(fd, size, PROT_READ | PROT_WRITE);
    int error = errno;
    (void)close(fd);
    if (!arena_)
        throw Failure(F8_ENOMEM,
            "cannot map an arena of " + std::to_string(size) + " bytes: " + strerror(error));
    arena_size_ = size;
    (void)madvise(arena_, size, MADV_POPULATE_WRITE); /* its pages are there: no fault later */
    memory_ = std::make_unique<Memory>(*mesh_, arena_, size);
}

void Engine::exchange(std::vector<char> &payload)
{
    std::vector<fabric_span> spans = join_spans(payload);
    payload.clear();
    /* All receives first: what is sent then finds its place. */
    for (const fabric_span &span : spans) {
        check_span(span, mesh_->hosts, arena_size_);
        if (span.host != mesh_->here)
            memory_->receive(span.host, sequence_, span.offset, span.size);
    }
    for (const fabric_span &span : spans)
        for (uint32_t host = 0; span.host == mesh_->here && host < mesh_->hosts; host++)
            if (host != mesh_->here)
                memory_->send(host, sequence_, span.offset, span.size);
    memory_->wait();
}

void Engine::check_order(uint32_t command) const
{
    bool ready[] = {true, mesh_ != nullptr, reducer_ != nullptr, reducer_ != nullptr,
        memory_ != nullptr}; /* by command */
    if (command <= FABRIC_EXCHANGE && !ready[command])
        throw Failure(
            F8_EORDER, "the engine is not ready for the command " + std::to_string(command));
}

void Engine::run(Command &command)
{
    check_order(command.ask.command);
    sequence_ += REDUCE_SLOTS;
    if (mesh_ && command.ask.command != FABRIC_MAP)
        mesh_->begin(command.ask.size);
    switch (command.ask.command) {
    case FABRIC_OPEN:
        open(command.payload);
        break;
    case FABRIC_CONNECT:
        connect(command.payload);
        break;
    case FABRIC_MAP:
        map(command.fd, command.ask.size);
        break;
    case FABRIC_REDUCE:
        reducer_->maximum(sequence_, command.ask.tag, command.payload);
        break;
    case FABRIC_EXCHANGE:
        exchange(command.payload);
        break;
    default:
        throw Failure(F8_EINTERNAL, "there is no command " + std::to_string(command.ask.command));
    }
}

uint64_t Engine::sent() const
{
    return mesh_ ? mesh_->sent : 0;
}

uint64_t Engine::received() const
{
    return mesh_ ? mesh_->received : 0;
}
