#include "reply_box.h"

#include <utility>

#include "api/error_body.h"

namespace k3pod {

ReplyBox::ReplyBox(int64_t max_unsent_bytes, std::function<void()> wake)
    : max_unsent_bytes_(static_cast<size_t>(max_unsent_bytes)), wake_(std::move(wake)) {}

void ReplyBox::push_locked(Phase next) {
    phase_ = next;
    // A connection that is stuck in a write does not take(), but it must hear of the end.
    if (wake_ && (!is_awake_ || next == Phase::kBroken)) wake_();
    is_awake_ = true;
}

void ReplyBox::send(HttpResponse response) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kEmpty) return;
    body_ = std::move(response.body);
    head_ = std::move(response);
    push_locked(Phase::kComplete);
}

void ReplyBox::begin_stream(HttpResponse head) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kEmpty) return;
    is_stream_ = true;
    head_ = std::move(head);
    push_locked(Phase::kStreaming);
}

void ReplyBox::write(std::string piece) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kStreaming || piece.empty()) return;
    if (body_.size() > max_unsent_bytes_) {
        body_ = {};
        return push_locked(Phase::kBroken);
    }
    body_ += piece;
    push_locked(Phase::kStreaming);
}

void ReplyBox::end() {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kStreaming) push_locked(Phase::kComplete);
}

void ReplyBox::on_disconnect(std::function<void()> callback) {
    {
        const std::lock_guard lock(mutex_);
        if (phase_ != Phase::kGone) {
            callback_ = std::move(callback);
            return;
        }
    }
    callback();
}

void ReplyBox::abandon() {
    bool never_answered = false;
    {
        const std::lock_guard lock(mutex_);
        never_answered = phase_ == Phase::kEmpty;
        if (phase_ == Phase::kStreaming) push_locked(Phase::kBroken);
    }
    if (never_answered) {
        send(error_response(
            {.status = 500,
             .message = "the server gave this request no answer; its log says why"}));
    }
}

bool ReplyBox::is_broken() {
    const std::lock_guard lock(mutex_);
    return phase_ == Phase::kBroken;
}

ReplyBox::Output ReplyBox::take() {
    const std::lock_guard lock(mutex_);
    is_awake_ = false;
    Output output;
    output.head = std::exchange(head_, std::nullopt);
    output.body = std::exchange(body_, {});
    output.is_stream = is_stream_;
    output.is_complete = phase_ == Phase::kComplete;
    return output;
}

void ReplyBox::client_gone() {
    std::function<void()> callback;
    {
        const std::lock_guard lock(mutex_);
        wake_ = nullptr;
        if (phase_ != Phase::kComplete) callback = std::move(callback_);
        callback_ = nullptr;
        phase_ = Phase::kGone;
        body_ = {};
    }
    // Outside the lock: the callback takes locks of the engine, whose thread may be in write().
    if (callback) callback();
}

namespace {

class Reply final : public HttpReply {
  public:
    explicit Reply(std::shared_ptr<ReplyBox> box) : box_(std::move(box)) {}
    ~Reply() override { box_->abandon(); }

    void send(HttpResponse response) override { box_->send(std::move(response)); }
    void begin_stream(HttpResponse head) override { box_->begin_stream(std::move(head)); }
    void write(std::string piece) override { box_->write(std::move(piece)); }
    void end() override { box_->end(); }
    void on_disconnect(std::function<void()> callback) override {
        box_->on_disconnect(std::move(callback));
    }

  private:
    const std::shared_ptr<ReplyBox> box_;  // Shared with the connection; either may go first.
};

}  // namespace

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<ReplyBox> box) {
    return std::make_shared<Reply>(std::move(box));
}

}  // namespace k3pod
