/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maximum over the hosts, value by value, of vectors of uint32_t. Called by the engine. Short
 * vectors go to all hosts at once; of long ones each host reduces a slice and gives it to all.
 */
#ifndef F8_DAEMON_GLOO_REDUCE_H
#define F8_DAEMON_GLOO_REDUCE_H

#include <memory>
#include <vector>

#include "mesh.h"

/* How many slots from the one given on a reduction uses. */
constexpr uint64_t REDUCE_SLOTS = 4;

class Reducer
{
  public:
    explicit Reducer(Mesh &mesh);

    /*
     * In place. Throws where a host gives another tag or another number of values: that is told
     * first, in a message whose size does not depend on it.
     */
    void maximum(uint64_t slot, uint64_t tag, std::vector<char> &values);

  private:
    void reserve(size_t size);
    size_t greeting(uint32_t host) const;
    void exchange_greetings(uint64_t slot, uint64_t tag, const std::vector<char> &values);
    void check_greeting(uint32_t host, uint64_t tag, uint64_t count) const;
    void reduce_short(std::vector<char> &values);
    void reduce_long(uint64_t slot, std::vector<char> &values);

    Mesh &mesh_;
    std::unique_ptr<char[]> space_; /* a greeting of each host, then what long vectors need */
    size_t size_ = 0;
    std::unique_ptr<Memory> memory_; /* of it */
};

#endif
