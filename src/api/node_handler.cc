#include <utility>

#include "api/error_body.h"
#include "k3pod/api/openai_api.h"

namespace k3pod {
namespace {

constexpr const char* kMethods = "GET, HEAD, OPTIONS";

HttpResponse refuse_method() {
    HttpResponse refusal = error_response({.status = 405, .message = "use GET"});
    refusal.headers.emplace_back("Allow", kMethods);
    return refusal;
}

}  // namespace

HttpHandler make_node_handler(MetricsRegistry& metrics, std::function<Status()> health,
                              std::function<std::string()> health_json) {
    return [&metrics, health = std::move(health), health_json = std::move(health_json)](
               HttpRequest request, std::shared_ptr<HttpReply> reply) {
        const bool is_options = request.method == "OPTIONS";
        const bool is_route = request.path == "/health" || request.path == "/metrics";
        if (!is_route && !(is_options && request.path == "*")) {
            return reply->send(error_response(
                {.status = 404,
                 .message =
                     "an expert server has /health and /metrics; the API is on the station"}));
        }
        if (is_options) return reply->send({.status = 204, .headers = {{"Allow", kMethods}}});
        if (request.method != "GET" && request.method != "HEAD") {
            return reply->send(refuse_method());
        }
        if (request.path == "/metrics") {
            return reply->send({.content_type = kMetricsContentType, .body = metrics.expose()});
        }
        if (const Status status = health(); !status.is_ok()) {
            return reply->send(error_response({.status = 503, .message = status.message()}));
        }
        reply->send({.body = health_json()});
    };
}

}  // namespace k3pod
