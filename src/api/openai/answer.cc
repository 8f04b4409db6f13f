#include "answer.h"

#include <fmt/format.h>

#include <utility>

#include "api/openai/status_error.h"
#include "k3pod/base/log.h"

namespace k3pod {

// Holds the answer for as long as the engine holds the sink.
class Answer::Sink final : public GenerationSink {
  public:
    Sink(std::shared_ptr<Answer> answer, size_t choice_idx)
        : answer_(std::move(answer)), choice_idx_(choice_idx) {}
    bool on_token(const SampledToken& token) override {
        return answer_->on_token(choice_idx_, token);
    }
    void on_finish(FinishReason reason, const Status& status) override {
        answer_->on_finish(choice_idx_, reason, status);
    }

  private:
    const std::shared_ptr<Answer> answer_;
    const size_t choice_idx_;
};

Answer::Answer(Setup setup)
    : info_(std::move(setup.info)),
      reply_(std::move(setup.reply)),
      clock_(*setup.clock),
      keepalive_(setup.keepalive),
      format_(std::move(setup.format)),
      choices_(std::move(setup.choices)) {}

// ---- the start, on an HTTP worker ----

void Answer::start(GenerationService& service, std::vector<GenerationRequest> requests) {
    const Status status = submit_all(service, requests);
    if (!status.is_ok()) {
        cancel_all(service);
        reply_->send(error_response(to_api_error(status)));
        return;
    }
    if (info_->params.stream) open_stream();
    // The engine outlives the HTTP server, so it is there whenever a client can leave.
    reply_->on_disconnect([weak = weak_from_this(), &service] {
        if (const auto self = weak.lock()) self->cancel_all(service);
    });
}

Status Answer::submit_all(GenerationService& service, std::vector<GenerationRequest>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
        K3POD_ASSIGN(
            const RequestHandle handle,
            service.submit(std::move(requests[i]), std::make_shared<Sink>(shared_from_this(), i)));
        const std::lock_guard lock(mutex_);
        handles_.push_back(handle);
    }
    return Status::ok();
}

// Tokens that came while the later choices were submitted go out behind the head.
void Answer::open_stream() {
    const std::lock_guard lock(mutex_);
    if (early_error_) return reply_->send(error_response(*early_error_));
    reply_->begin_stream(head());
    is_open_ = true;
    last_sent_ = clock_.now();
    send_locked();
    if (is_over_) reply_->end();
}

HttpResponse Answer::head() const {
    HttpResponse response;
    int64_t prompt_tokens = 0;
    for (const auto& prompt : info_->prompts) prompt_tokens += static_cast<int64_t>(prompt.size());
    response.headers = {{"X-Request-Id", info_->id},
                        {"X-Msh-Usage-Prompt-Tokens", std::to_string(prompt_tokens)},
                        {"X-Msh-Usage-Cached-Tokens", "0"}};
    if (!info_->params.stream) return response;
    response.content_type = "text/event-stream";
    // Proxies must not collect events.
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("X-Accel-Buffering", "no");
    return response;
}

void Answer::cancel_all(GenerationService& service) {
    std::vector<RequestHandle> handles;
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
        is_cancelled_ = true;
        handles = handles_;
    }
    for (const RequestHandle handle : handles) service.cancel(handle);
}

// ---- tokens, on the step thread ----

bool Answer::on_token(size_t choice_idx, const SampledToken& token) {
    const std::lock_guard lock(mutex_);
    // What is cancelled goes on until the engine knows, so that it does not count as stopped.
    if (is_over_) return is_cancelled_;
    Choice& choice = choices_[choice_idx];
    // The first chunk goes out with the first token, so that clients measure a true time to it.
    const bool is_first = !choice.has_tokens();
    const bool goes_on = choice.push(token, pieces_);
    if (is_first) format_->begin(choice, out_);
    add_pieces_locked(choice);
    send_locked();
    return goes_on;
}

void Answer::on_finish(size_t choice_idx, FinishReason reason, const Status& status) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    if (reason == FinishReason::kError) return fail_locked(status);
    if (reason == FinishReason::kCancelled) {
        return fail_locked(cancelled("the request was cancelled by the server"));
    }
    Choice& choice = choices_[choice_idx];
    if (!choice.has_tokens()) format_->begin(choice, out_);
    choice.finish(reason, pieces_);
    add_pieces_locked(choice);
    format_->end(choice, out_);
    if (++num_finished_ == choices_.size()) {
        format_->end_all(total_usage_locked(), out_);
        complete_locked();
    } else {
        send_locked();
    }
}

void Answer::add_pieces_locked(Choice& choice) {
    for (const Piece& piece : pieces_) format_->piece(choice, piece, out_);
    pieces_.clear();
}

void Answer::send_locked() {
    if (!is_open_ || out_.empty()) return;
    reply_->write(std::exchange(out_, {}));
    last_sent_ = clock_.now();
}

void Answer::complete_locked() {
    is_over_ = true;
    if (!info_->params.stream) {
        HttpResponse response = head();
        response.body = std::move(out_);
        reply_->send(std::move(response));
    } else if (is_open_) {
        send_locked();
        reply_->end();
    }
}

void Answer::fail_locked(const Status& why) {
    log::warning(fmt::format("request {} failed: {}", info_->id, why.to_string()));
    const ApiError error = to_api_error(why);
    is_over_ = true;
    if (is_open_) {
        out_ += "data: " + error_json(error) + "\n\n";
        complete_locked();
    } else if (info_->params.stream) {
        early_error_ = error;
    } else {
        reply_->send(error_response(error));
    }
}

Usage Answer::total_usage_locked() const {
    Usage total;
    for (const auto& prompt : info_->prompts) {
        total.prompt_tokens += static_cast<int64_t>(prompt.size());
    }
    for (const Choice& choice : choices_) {
        total.completion_tokens += choice.usage().completion_tokens;
        total.reasoning_tokens += choice.usage().reasoning_tokens;
    }
    return total;
}

// ---- silence, on the keep-alive thread ----

std::optional<TimePoint> Answer::keep_alive(TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return std::nullopt;
    if (!is_open_) return now + keepalive_;
    if (now - last_sent_ >= keepalive_) {
        reply_->write(": keep-alive\n\n");
        last_sent_ = now;
    }
    return last_sent_ + keepalive_;
}

}  // namespace k3pod
