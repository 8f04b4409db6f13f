#include <utility>

#include "api/error_body.h"
#include "k3pod/api/openai_api.h"

namespace k3pod {
namespace {

bool is_read_method(const std::string& method) {
    return method == "GET" || method == "HEAD";
}

}  // namespace

HttpHandler make_node_handler(MetricsRegistry& metrics, std::function<Status()> health,
                              std::function<std::string()> health_json) {
    return [&metrics, health = std::move(health), health_json = std::move(health_json)](
               HttpRequest request, std::shared_ptr<HttpReply> reply) {
        if (request.path != "/health" && request.path != "/metrics") {
            return reply->send(error_response(
                {.status = 404,
                 .message =
                     "an expert server has /health and /metrics; the API is on the station"}));
        }
        if (!is_read_method(request.method)) {
            HttpResponse refusal = error_response({.status = 405, .message = "use GET"});
            refusal.headers.emplace_back("Allow", "GET, HEAD");
            return reply->send(std::move(refusal));
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
