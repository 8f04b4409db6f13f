#pragma once
// The OpenAI-compatible endpoint over a GenerationService. docs/api.md lists every field.

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
    std::string model_name;
    std::string build_id;
    Nanoseconds sse_keepalive{std::chrono::seconds(10)};
    float default_temperature = 1.0f;  // from generation_config.json
    float default_top_p = 1.0f;
    Nanoseconds stall_limit{std::chrono::seconds(10)};  // /health: no token progress for this long is 503
};

class OpenAiApi {
  public:
    virtual ~OpenAiApi() = default;
    // Borrows everything.
    static std::unique_ptr<OpenAiApi> create(const ApiOptions& options, GenerationService& service,
                                             const Tokenizer& tokenizer, const ChatWording& wording,
                                             const Clock& clock, MetricsRegistry& metrics);
    // The HttpHandler: routes, validates, answers. Runs on HTTP workers.
    virtual void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
};

// The handler of an expert server: GET /health and GET /metrics only. `health` returns ok, or why not.
HttpHandler make_node_handler(MetricsRegistry& metrics, std::function<Status()> health,
                              std::function<std::string()> health_json);

}  // namespace k3pod
