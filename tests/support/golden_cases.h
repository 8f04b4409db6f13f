#pragma once
// What an independent fp64 reference computed with models/k3-tiny
// (tests/golden/k3-tiny/golden.json).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod::testing {

struct GoldenRouting {
    int32_t layer = 0;
    std::vector<uint16_t> experts;  // [K], best selection score first
    std::vector<float> weights;     // [K]
};

// Everything refers to the last prompt position unless said otherwise.
struct GoldenCase {
    std::string name;
    std::vector<int32_t> prompt_ids;
    std::vector<int32_t> top_ids;  // the 32 best logits
    std::vector<float> top_logits;
    float logsumexp = 0;
    std::vector<float> accumulator_l2;   // one per layer
    std::vector<GoldenRouting> routing;  // one per MoE layer
    std::vector<int32_t> greedy_ids;     // continuation behind the prompt
    float min_top2_gap = 0;              // smallest gap of the two best logits on that path
};

Result<std::vector<GoldenCase>> read_golden_cases(const std::filesystem::path& file);

}  // namespace k3pod::testing
