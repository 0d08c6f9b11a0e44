/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of what the helper does, which Gloo cannot keep without breaking all connections: a
 * thread of its own interrupts what the main thread waits for once the time is over. Set by the
 * engine, command by command; used by whatever waits.
 */
#ifndef F8_DAEMON_GLOO_ALARM_H
#define F8_DAEMON_GLOO_ALARM_H

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

class Alarm
{
  public:
    using Clock = std::chrono::steady_clock;

    Alarm();
    ~Alarm();

    /* What begins now has this long. */
    void set(std::chrono::milliseconds limit);
    bool is_over(std::chrono::milliseconds from_now = std::chrono::milliseconds(0)) const;
    std::chrono::milliseconds limit() const;

    /* While it lives, `interrupt` is called when the time is over, on either thread, and at once if
     * it was over before. */
    class Wait
    {
      public:
        Wait(Alarm &alarm, std::function<void()> interrupt);
        ~Wait();

      private:
        Alarm &alarm_;
    };

  private:
    void run();

    mutable std::mutex mutex_;
    std::condition_variable sooner_;
    std::chrono::milliseconds limit_{0};
    Clock::time_point end_ = Clock::time_point::max(), next_ = Clock::time_point::max();
    std::function<void()> interrupt_; /* none: nothing waits */
    bool ends_ = false;
    std::thread thread_; /* last: it uses all others */
};

#endif
