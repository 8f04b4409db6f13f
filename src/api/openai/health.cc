#include "health.h"

#include <fmt/format.h>

#include "api/openai/answer_json.h"

namespace k3pod {
namespace {

std::string name_of_state(const ServiceState& state) {
    if (!state.holding.empty()) return "holding, " + state.holding;
    if (!state.accepts) return "closed";
    return state.num_running + state.num_waiting > 0 ? "working" : "idle";
}

}  // namespace

HttpResponse health_response(const ServiceState& state, Nanoseconds stall_limit) {
    const int32_t num_requests = state.num_running + state.num_waiting;
    const bool is_stalled =
        num_requests > 0 && state.seconds_since_progress > to_seconds(stall_limit);
    std::string reason = state.reason;
    const auto put_in_front = [&](const std::string& why) {
        reason = why + (reason.empty() ? "" : "; ") + reason;
    };
    if (!state.holding.empty()) put_in_front("a step is held, " + state.holding);
    if (is_stalled) {
        put_in_front(fmt::format("no token progress for {:.1f} s with {} requests (limit {:.1f} s)",
                                 state.seconds_since_progress, num_requests,
                                 to_seconds(stall_limit)));
    }
    OrderedJson body{{"status", reason.empty() ? "ok" : "unavailable"},
                     {"state", name_of_state(state)},
                     {"running", state.num_running},
                     {"waiting", state.num_waiting},
                     {"kv_usage", state.kv_usage},
                     {"seconds_since_progress", state.seconds_since_progress},
                     {"tokens_generated", state.num_generated_tokens}};
    if (!reason.empty()) body["reason"] = reason;
    HttpResponse response;
    response.status = reason.empty() ? 200 : 503;
    response.body = dump(body);
    if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
}

}  // namespace k3pod
