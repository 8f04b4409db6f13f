#include "exchange/keeper.h"

#include <utility>

namespace k3pod::exchange {

Keeper::Keeper(Nanoseconds period, std::function<void()> duty)
    : period_(period), duty_(std::move(duty)), thread_([this] { run(); }) {}

Keeper::~Keeper() {
    stop();
}

void Keeper::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Keeper::nudge() {
    {
        const std::lock_guard lock(mutex_);
        is_nudged_ = true;
    }
    wake_.notify_all();
}

void Keeper::run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        wake_.wait_for(lock, period_, [&] { return is_stopping_ || is_nudged_; });
        is_nudged_ = false;
        lock.unlock();
        duty_();
        lock.lock();
    }
}

}  // namespace k3pod::exchange
