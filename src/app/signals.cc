#include "signals.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

namespace k3pod {
namespace {

sigset_t stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

// True when one arrived within 100 ms.
bool wait_briefly_for_signal() {
    const sigset_t set = stop_signals();
    const timespec timeout{0, 100'000'000};
    return sigtimedwait(&set, nullptr, &timeout) > 0;
}

}  // namespace

StopSignal::StopSignal() {
    const sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

StopSignal::~StopSignal() {
    stopping_ = true;
    if (second_signal_.joinable()) second_signal_.join();
}

void StopSignal::wait() {
    while (!requested_.load()) {
        if (wait_briefly_for_signal()) requested_ = true;
    }
}

void StopSignal::wait_for(Nanoseconds limit) {
    const TimePoint end = SteadyClock().now() + limit;
    while (!requested_.load() && SteadyClock().now() < end) {
        if (wait_briefly_for_signal()) requested_ = true;
    }
}

void StopSignal::request() {
    requested_ = true;
}

void StopSignal::exit_on_next_signal() {
    second_signal_ = std::thread([this] {
        while (!stopping_.load()) {
            if (wait_briefly_for_signal()) std::_Exit(130);
        }
    });
}

}  // namespace k3pod
