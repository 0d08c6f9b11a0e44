/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of what the helper does: see alarm.h. A new limit is mostly later than the one before,
 * so the thread is left asleep until that one is over, and only then sees the new one: commands
 * cost no wake-up.
 */
#include "alarm.h"

Alarm::Alarm() : thread_(&Alarm::run, this)
{
}

Alarm::~Alarm()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    sooner_.notify_one();
    thread_.join();
}

void Alarm::set(std::chrono::milliseconds limit)
{
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = limit;
    end_ = Clock::now() + limit;
    if (end_ < next_)
        sooner_.notify_one();
}

bool Alarm::is_over(std::chrono::milliseconds from_now) const
{
    std::lock_guard<std::mutex> lock(mutex_);
    return Clock::now() + from_now >= end_;
}

std::chrono::milliseconds Alarm::limit() const
{
    std::lock_guard<std::mutex> lock(mutex_);
    return limit_;
}

Alarm::Wait::Wait(Alarm &alarm, std::function<void()> interrupt) : alarm_(alarm)
{
    std::lock_guard<std::mutex> lock(alarm_.mutex_);
    if (Clock::now() >= alarm_.end_)
        interrupt(); /* the thread has been there */
    else
        alarm_.interrupt_ = std::move(interrupt);
}

Alarm::Wait::~Wait()
{
    std::lock_guard<std::mutex> lock(alarm_.mutex_);
    alarm_.interrupt_ = nullptr;
}

void Alarm::run()
{
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ends_) {
        if (Clock::now() < end_) {
            next_ = end_;
        } else {
            next_ = Clock::time_point::max();
            if (interrupt_)
                interrupt_();
            interrupt_ = nullptr;
        }
        if (next_ == Clock::time_point::max())
            sooner_.wait(lock);
        else
            sooner_.wait_until(lock, next_);
    }
}
