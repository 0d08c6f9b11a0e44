/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions: see reduce.h. The first message of each host, its greeting, has tag and count and, of
 * a short vector, the values too: what receives it has room for the longest, so that hosts that
 * disagree read what the other says instead of ending.
 */
#include "reduce.h"

#include <algorithm>
#include <cstring>

#include "failure.h"

namespace
{
struct Greeting {
    uint64_t tag, count;
};

constexpr size_t SHORT_BYTES = size_t{64} << 10;
constexpr size_t GREETING_BYTES = sizeof(Greeting) + SHORT_BYTES;

/* As bytes, which are not aligned in messages; compilers make vectors of it. */
void take_maximum(char *into, const char *from, size_t size)
{
    for (size_t i = 0; i < size; i += sizeof(uint32_t)) {
        uint32_t a, b;
        memcpy(&a, into + i, sizeof(a));
        memcpy(&b, from + i, sizeof(b));
        a = std::max(a, b);
        memcpy(into + i, &a, sizeof(a));
    }
}

/* The slice that a host reduces. */
struct Slice {
    size_t offset, size; /* bytes */
};

Slice slice_of(size_t size, uint32_t host, uint32_t hosts)
{
    size_t count = size / sizeof(uint32_t), each = (count + hosts - 1) / hosts;
    size_t first = std::min(count, host * each), last = std::min(count, first + each);
    return {first * sizeof(uint32_t), (last - first) * sizeof(uint32_t)};
}
} // namespace

Reducer::Reducer(Mesh &mesh) : mesh_(mesh)
{
    reserve(greeting(mesh_.hosts));
}

/* Not zeroed: most is never touched. */
void Reducer::reserve(size_t size)
{
    if (size <= size_)
        return;
    memory_.reset();
    space_.reset(new char[size]);
    size_ = size;
    memory_ = std::make_unique<Memory>(mesh_, space_.get(), size);
}

size_t Reducer::greeting(uint32_t host) const
{
    return host * GREETING_BYTES;
}

void Reducer::check_greeting(uint32_t host, uint64_t tag, uint64_t count) const
{
    Greeting its;
    memcpy(&its, space_.get() + greeting(host), sizeof(its));
    if (its.tag != tag || its.count != count)
        throw Failure(F8_EMISMATCH, mesh_.name(host) + " reduces " + std::to_string(its.count) +
                                        " values with tag " + std::to_string(its.tag) + ", " +
                                        mesh_.name(mesh_.here) + " " + std::to_string(count) +
                                        " values with tag " + std::to_string(tag));
}

void Reducer::exchange_greetings(uint64_t slot, uint64_t tag, const std::vector<char> &values)
{
    Greeting own = {tag, values.size() / sizeof(uint32_t)};
    size_t size = values.size() <= SHORT_BYTES ? values.size() : 0;
    char *to = space_.get() + greeting(mesh_.here);
    memcpy(to, &own, sizeof(own));
    std::copy_n(values.begin(), size, to + sizeof(own));
    for (uint32_t host = 0; host < mesh_.hosts; host++)
        if (host != mesh_.here)
            memory_->receive(host, slot, greeting(host), GREETING_BYTES);
    for (uint32_t host = 0; host < mesh_.hosts; host++)
        if (host != mesh_.here)
            memory_->send(host, slot, greeting(mesh_.here), sizeof(own) + size);
    memory_->wait();
    /* They were posted with all the room there is. */
    mesh_.received -= (mesh_.hosts - 1) * (SHORT_BYTES - size);
    for (uint32_t host = 0; host < mesh_.hosts; host++)
        check_greeting(host, tag, own.count);
}

void Reducer::reduce_short(std::vector<char> &values)
{
    for (uint32_t host = 0; host < mesh_.hosts; host++)
        take_maximum(
            values.data(), space_.get() + greeting(host) + sizeof(Greeting), values.size());
}

void Reducer::reduce_long(uint64_t slot, std::vector<char> &values)
{
    const size_t whole = greeting(mesh_.hosts); /* the vector, then own slices of the others */
    const Slice own = slice_of(values.size(), mesh_.here, mesh_.hosts);
    auto part = [&](uint32_t host) { return whole + values.size() + host * own.size; };
    std::copy(values.begin(), values.end(), space_.get() + whole);
    auto each = [&](auto transfer) {
        for (uint32_t host = 0; host < mesh_.hosts; host++)
            if (host != mesh_.here)
                transfer(host, slice_of(values.size(), host, mesh_.hosts));
    };
    each([&](uint32_t host, Slice) { memory_->receive(host, slot, part(host), own.size); });
    each(
        [&](uint32_t host, Slice its) { memory_->send(host, slot, whole + its.offset, its.size); });
    memory_->wait();
    each([&](uint32_t host, Slice) {
        take_maximum(space_.get() + whole + own.offset, space_.get() + part(host), own.size);
    });
    each([&](uint32_t host, Slice its) {
        memory_->receive(host, slot + 1, whole + its.offset, its.size);
    });
    each(
        [&](uint32_t host, Slice) { memory_->send(host, slot + 1, whole + own.offset, own.size); });
    memory_->wait();
    std::copy_n(space_.get() + whole, values.size(), values.begin());
}

void Reducer::maximum(uint64_t slot, uint64_t tag, std::vector<char> &values)
{
    exchange_greetings(slot, tag, values);
    if (values.size() <= SHORT_BYTES) {
        reduce_short(values);
        return;
    }
    const Slice own = slice_of(values.size(), mesh_.here, mesh_.hosts);
    reserve(greeting(mesh_.hosts) + values.size() + mesh_.hosts * own.size);
    reduce_long(slot + 1, values);
}
