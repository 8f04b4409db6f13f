#pragma once
// One answer on its way from the threads that make it to the I/O thread that writes it.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "k3pod/api/http_server.h"

namespace k3pod {

class ReplyBox {
  public:
    // `wake` makes the connection call take() soon; it is called under the lock, so it only posts.
    ReplyBox(int64_t max_unsent_bytes, std::function<void()> wake);

    // ---- any thread ----
    void send(HttpResponse response);
    void begin_stream(HttpResponse head);
    void write(std::string piece);
    void end();
    void on_disconnect(std::function<void()> callback);
    // Nobody holds the reply any more: an answer that is not complete never will be.
    void abandon();

    // ---- I/O thread ----
    struct Output {
        std::optional<HttpResponse> head;  // once; its body is already moved to `body`
        bool is_stream = false;
        std::string body;  // what came since the last call
        bool is_complete = false;
    };
    Output take();
    // The connection has to be cut: too much is unsent, or the stream was abandoned.
    bool is_broken();
    // No more wake-ups; later calls of the producers do nothing. Calls the on_disconnect callback
    // if the answer was not complete.
    void client_gone();

  private:
    enum class Phase { kEmpty, kStreaming, kComplete, kBroken, kGone };

    void push_locked(Phase next);

    std::mutex mutex_;
    const size_t max_unsent_bytes_;
    std::function<void()> wake_;
    std::function<void()> callback_;
    Phase phase_ = Phase::kEmpty;
    bool is_stream_ = false;
    std::optional<HttpResponse> head_;
    std::string body_;
    bool is_awake_ = false;  // a wake-up is under way: pieces until then share one write
};

// What a handler holds.
std::shared_ptr<HttpReply> make_reply(std::shared_ptr<ReplyBox> box);

}  // namespace k3pod
