#pragma once
// A GenerationSink that remembers everything and lets a test wait for it, with a deadline.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "k3pod/engine/generation_service.h"

namespace k3pod::testing {

class RecordingSink final : public GenerationSink {
  public:
    static constexpr std::chrono::seconds kPatience{30};

    // Called on the step thread after a token was recorded; its answer goes back to the engine.
    std::function<bool(const SampledToken&)> when_token;
    std::function<void()> when_scheduled;

    void on_scheduled() override {
        if (when_scheduled) when_scheduled();
        note([this] { ++num_scheduled_; });
    }
    bool on_token(const SampledToken& token) override {
        note([&] {
            ids_.push_back(token.id);
            tokens_.push_back(token);
        });
        return !when_token || when_token(token);
    }
    void on_finish(FinishReason reason, const Status& status) override {
        note([&] {
            ++num_finished_;
            reason_ = reason;
            status_ = status;
        });
    }

    // False when it did not happen within kPatience.
    [[nodiscard]] bool wait_finished() {
        return wait([this] { return num_finished_ > 0; });
    }
    [[nodiscard]] bool wait_tokens(size_t count) {
        return wait([this, count] { return ids_.size() >= count || num_finished_ > 0; });
    }
    [[nodiscard]] bool wait_scheduled() {
        return wait([this] { return num_scheduled_ > 0; });
    }

    std::vector<int32_t> ids() const { return get(ids_); }
    std::vector<SampledToken> tokens() const { return get(tokens_); }
    FinishReason reason() const { return get(reason_); }
    Status status() const { return get(status_); }
    int num_scheduled() const { return get(num_scheduled_); }
    int num_finished() const { return get(num_finished_); }

  private:
    template <class Change>
    void note(Change change) {
        {
            const std::lock_guard lock(mutex_);
            change();
        }
        changed_.notify_all();
    }
    template <class Condition>
    bool wait(Condition condition) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, condition);
    }
    template <class T>
    T get(const T& value) const {
        const std::lock_guard lock(mutex_);
        return value;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<int32_t> ids_;
    std::vector<SampledToken> tokens_;
    FinishReason reason_ = FinishReason::kStop;
    Status status_;
    int num_scheduled_ = 0;
    int num_finished_ = 0;
};

}  // namespace k3pod::testing
