/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the helper does for its daemon, command by command. Each blocks until it is done and throws
 * if it cannot be; after that the engine is of no use any more. Called by main.cc.
 */
#ifndef F8_DAEMON_GLOO_ENGINE_H
#define F8_DAEMON_GLOO_ENGINE_H

#include <memory>

#include "daemon_socket.h"
#include "mesh.h"
#include "reduce.h"

class Engine
{
  public:
    /* What the command has to say in its answer stays in `command.payload`. */
    void run(Command &command);

    uint64_t sent() const;
    uint64_t received() const;

  private:
    void check_order(uint32_t command) const;
    void open(std::vector<char> &payload);
    void connect(std::vector<char> &payload);
    void map(int fd, uint64_t size);
    void exchange(std::vector<char> &payload);

    std::unique_ptr<Mesh> mesh_;
    std::unique_ptr<Reducer> reducer_;
    void *arena_ = nullptr; /* owned mapping */
    uint64_t arena_size_ = 0;
    std::unique_ptr<Memory> memory_; /* of the arena; before the mapping goes */
    uint64_t sequence_ = 0;          /* of commands: the same on all hosts */
};

#endif
