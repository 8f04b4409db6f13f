#pragma once
// The OpenAI-compatible endpoint over a GenerationService. docs/api.md lists every field.

#include <functional>
#include <memory>
#include <string>

#include "k3pod/api/chat.h"
#include "k3pod/api/http_server.h"
#include "k3pod/base/clock.h"
#include "k3pod/engine/generation_service.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {

struct ApiOptions {
    std::string model_name{};
    std::string build_id{};
    // Comment lines on a stream that is silent for so long; 0: none.
    Nanoseconds sse_keepalive{std::chrono::seconds(10)};
    float default_temperature = 1.0f;  // from generation_config.json
    float default_top_p = 1.0f;
    // /health is 503 when there is work and no token progress for so long.
    Nanoseconds stall_limit{std::chrono::seconds(10)};
};

class OpenAiApi {
  public:
    // Answers under way go on without it: they hold the service, the tokenizer, the clock and the
    // metrics, which must outlive the HTTP server and every request.
    virtual ~OpenAiApi() = default;
    // Borrows everything.
    static std::unique_ptr<OpenAiApi> create(const ApiOptions& options, GenerationService& service,
                                             const Tokenizer& tokenizer, const ChatWording& wording,
                                             const Clock& clock, MetricsRegistry& metrics);
    // The HttpHandler: routes, validates, answers. Runs on HTTP workers; tokenises there, too.
    virtual void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
};

// The handler of an expert server: GET /health and GET /metrics only. `health` returns ok, or why
// not; `health_json` is the body of /health when it is ok. Borrows metrics.
HttpHandler make_node_handler(MetricsRegistry& metrics, std::function<Status()> health,
                              std::function<std::string()> health_json);

}  // namespace k3pod
