#pragma once
// How often the router picks each expert: uniform, or counted in a trace.
//
// A trace is one JSON object: "format" is "k3pod-trace-1"; "first_layer", "num_layers" and
// "num_experts" as in a placement; "tokens", how many tokens were counted; "picks", one list per
// MoE layer of how many of these tokens picked each expert.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct PickTrace {
    int32_t first_layer = 0;
    int32_t num_layers = 0;
    int32_t num_experts = 0;
    int64_t tokens = 0;
    std::vector<int64_t> picks;  // [num_layers * num_experts], each at most tokens
    bool operator==(const PickTrace&) const = default;
};

// parse(to_json(t)) == t. kInvalidArgument names the field, what was found and what is expected.
std::string to_json(const PickTrace& trace);
Result<PickTrace> parse_trace(std::string_view json);
// Messages name the file.
Result<PickTrace> read_trace(const std::filesystem::path& file);

struct Popularity {
    int32_t num_layers = 0;
    int32_t num_experts = 0;
    int32_t top_k = 0;           // picks of one token in one layer
    std::vector<double> chance;  // [num_layers * num_experts]: a token picks it; sums to top_k
    bool is_uniform = true;
    std::span<const double> of_layer(int32_t layer_idx) const {
        return std::span(chance).subspan(static_cast<size_t>(layer_idx * num_experts),
                                         static_cast<size_t>(num_experts));
    }
};

Popularity uniform_popularity(int32_t num_layers, int32_t num_experts, int32_t top_k);
// Of several traces together, each token of each counting the same. Half a pick more is given to
// every expert, so that one that was never seen keeps a chance. kInvalidArgument when a trace is of
// another model, or its picks are not top_k for each token in each layer. No trace: uniform.
Result<Popularity> popularity_of(std::span<const PickTrace> traces, int32_t first_layer,
                                 int32_t num_layers, int32_t num_experts, int32_t top_k);

}  // namespace k3pod
