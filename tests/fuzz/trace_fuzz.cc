// A trace of picks: any bytes give a trace that reads back, or one sentence; and any trace gives
// chances that sum to top_k, or one sentence.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "k3pod/placement/popularity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto trace = k3pod::parse_trace(text);
    if (!trace.is_ok()) {
        if (trace.status().message().empty()) std::abort();
        return 0;
    }
    const auto again = k3pod::parse_trace(k3pod::to_json(*trace));
    if (!again.is_ok() || !(*again == *trace)) std::abort();
    const int64_t picks = std::accumulate(trace->picks.begin(),
                                          trace->picks.begin() + trace->num_experts, int64_t{0});
    if (picks == 0 || picks % trace->tokens != 0) return 0;
    const auto top_k = static_cast<int32_t>(picks / trace->tokens);
    const auto popularity = k3pod::popularity_of({&*trace, 1}, trace->first_layer,
                                                 trace->num_layers, trace->num_experts, top_k);
    if (!popularity.is_ok()) return 0;
    const auto chances = popularity->of_layer(0);
    const double sum = std::accumulate(chances.begin(), chances.end(), 0.0);
    if (std::abs(sum - top_k) > 1e-6 * top_k) std::abort();
    return 0;
}
