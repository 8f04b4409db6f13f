#include "health.h"

#include <fmt/format.h>

#include "api/openai/answer_json.h"

namespace k3pod {

HttpResponse health_response(const ServiceState& state, Nanoseconds stall_limit) {
    const int32_t num_requests = state.num_running + state.num_waiting;
    const bool is_stalled =
        num_requests > 0 && state.seconds_since_progress > to_seconds(stall_limit);
    std::string reason = state.accepts ? "" : state.reason;
    if (is_stalled) {
        reason = fmt::format("no token progress for {:.1f} s with {} requests (limit {:.1f} s)",
                             state.seconds_since_progress, num_requests, to_seconds(stall_limit));
        if (!state.accepts) reason += "; " + state.reason;
    }
    OrderedJson body{{"status", reason.empty() ? "ok" : "unavailable"},
                     {"running", state.num_running},
                     {"waiting", state.num_waiting},
                     {"kv_usage", state.kv_usage},
                     {"seconds_since_progress", state.seconds_since_progress}};
    if (!reason.empty()) body["reason"] = reason;
    HttpResponse response;
    response.status = reason.empty() ? 200 : 503;
    response.body = dump(body);
    if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
}

}  // namespace k3pod
