#include "signals.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "k3pod/base/log.h"

namespace k3pod {
namespace {

bool has_terminal() {
    return isatty(STDIN_FILENO) == 1 || isatty(STDOUT_FILENO) == 1 || isatty(STDERR_FILENO) == 1;
}

sigset_t stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (has_terminal()) sigaddset(&set, SIGHUP);
    return set;
}

}  // namespace

StopSignal::StopSignal() : signals_(stop_signals()) {
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    // What nohup asked for cannot be seen any more: UCX takes SIGHUP for itself when it is loaded.
    std::signal(SIGHUP, SIG_IGN);
    watcher_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
    stopping_ = true;
    watcher_.join();
}

void StopSignal::watch() {
    const timespec pause{0, 100'000'000};  // how long a normal end may wait for this thread
    while (!stopping_) {
        if (sigtimedwait(&signals_, nullptr, &pause) <= 0) continue;
        switch (phase_.load()) {
            case Phase::kStarting:
                log::info("stopped before anything was served");
                std::_Exit(0);
            case Phase::kServing:
                request();
                break;
            case Phase::kDraining:
                std::_Exit(130);
        }
    }
}

void StopSignal::request() {
    {
        const std::lock_guard lock(mutex_);
        requested_ = true;
    }
    changed_.notify_all();
}

void StopSignal::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return requested_.load(); });
}

void StopSignal::wait_for(Nanoseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return requested_.load(); });
}

}  // namespace k3pod
