#pragma once
// The answer to one generation request: from the engine's tokens of all its choices to one HTTP
// reply.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/answer_format.h"
#include "k3pod/api/http_server.h"
#include "k3pod/base/clock.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {

// Lives as long as the engine knows one of its choices, or the reply its callback. Any thread; all
// the engine's calls come from the step thread, so nothing here waits or calls the engine from
// them.
class Answer : public std::enable_shared_from_this<Answer> {
  public:
    struct Setup {
        std::unique_ptr<const AnswerInfo> info;
        std::unique_ptr<AnswerFormat> format;  // borrows info
        std::vector<Choice> choices;
        std::shared_ptr<HttpReply> reply;
        const Clock* clock = nullptr;
        Nanoseconds keepalive{};  // 0: no comments
    };
    explicit Answer(Setup setup);

    // Submits one request per choice; a refusal of any is the answer. Call once.
    void start(GenerationService& service, std::vector<GenerationRequest> requests);

    // Writes a comment when the stream was silent for the keep-alive time. Gives the time of the
    // next look; nullopt when there is none to come.
    std::optional<TimePoint> keep_alive(TimePoint now);

  private:
    class Sink;

    bool on_token(size_t choice_idx, const SampledToken& token);
    void on_finish(size_t choice_idx, FinishReason reason, const Status& status);

    Status submit_all(GenerationService& service, std::vector<GenerationRequest>& requests);
    void open_stream();
    void cancel_all(GenerationService& service);
    HttpResponse head() const;

    void add_pieces_locked(Choice& choice);
    void send_locked();
    void fail_locked(const Status& why);
    void complete_locked();
    Usage total_usage_locked() const;

    const std::unique_ptr<const AnswerInfo> info_;
    const std::shared_ptr<HttpReply> reply_;  // Shared with the HTTP server's worker.
    const Clock& clock_;
    const Nanoseconds keepalive_;

    std::mutex mutex_;
    const std::unique_ptr<AnswerFormat> format_;
    std::vector<Choice> choices_;
    std::vector<RequestHandle> handles_;
    std::vector<Piece> pieces_;  // of the token in work
    std::string out_;            // bytes that are not sent yet; of a whole answer, all of them
    size_t num_finished_ = 0;
    bool is_open_ = false;  // the stream's head is sent
    bool is_over_ = false;  // complete, failed, or the client is gone: nothing is sent any more
    bool is_cancelled_ = false;            // the engine will end every choice
    std::optional<ApiError> early_error_;  // of a stream that is not open yet
    TimePoint last_sent_{};
};

}  // namespace k3pod
