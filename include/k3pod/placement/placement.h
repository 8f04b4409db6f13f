#pragma once
// Where the experts live. A shard is (layer, expert, begin, end): a slice of an expert's width on
// one holder. The shards of an expert tile [0, width) exactly once. Whole experts are one shard [0,
// width).

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

inline constexpr int32_t kSliceMultiple = 32;  // block of an FP4 scale

struct Shard {
    int32_t layer = 0;
    int32_t expert = 0;
    int32_t begin = 0;  // columns [begin, end) of the expert's width
    int32_t end = 0;
    bool operator==(const Shard&) const = default;
};

struct PlacedSlice {
    int32_t begin = 0;
    int32_t end = 0;
    int32_t holder = 0;  // index into Placement::holders
    bool operator==(const PlacedSlice&) const = default;
};

struct Placement {
    uint32_t epoch = 1;
    int32_t first_layer = 0;  // first MoE layer
    int32_t num_layers = 0;   // MoE layers
    int32_t num_experts = 0;
    int32_t width = 0;                 // moe_intermediate
    std::vector<std::string> holders;  // node names; "station" is the station's own tier
    // slices[(layer - first_layer) * num_experts + expert], each sorted by begin.
    std::vector<std::vector<PlacedSlice>> slices;

    std::span<const PlacedSlice> of(int32_t layer, int32_t expert) const;
    // Shards of one holder, sorted by layer, expert, begin.
    std::vector<Shard> shards_of(int32_t holder) const;
    bool operator==(const Placement&) const = default;
};

enum class PlacementMode : uint8_t { kWhole, kSliced };

struct HolderBudget {
    std::string name;
    int64_t budget_bytes = 0;  // 0 holds nothing
};

struct PlacementShape {
    int32_t first_layer = 0, num_layers = 0, num_experts = 0, width = 0;
    int64_t bytes_per_column = 0;  // of an expert: shard bytes = columns * bytes_per_column
};

// Even fill: every holder gets the same number of experts (whole) or of 32-column slices (sliced),
// as far as the budgets allow; one whose budget is smaller is filled and the others share the rest
// evenly. Each layer's experts, and neighbours among them, are spread over the holders in the same
// proportion. The same arguments give the same placement. kResourceExhausted names needed, budget
// and shortfall in bytes, per holder; kInvalidArgument the argument.
Result<Placement> place_evenly(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                               PlacementMode mode, uint32_t epoch);

// Every expert tiled once with multiples of 32, holders known, shape as given (kInvalidArgument);
// budgets kept (kResourceExhausted).
Status check_placement(const Placement& placement, const PlacementShape& shape,
                       std::span<const HolderBudget> budgets);

// placement.json, both ways; parse(to_json(p)) == p. Parsing refuses unknown, missing, repeated and
// wrong fields and experts that are not tiled once.
std::string to_json(const Placement& placement);
Result<Placement> parse_placement(std::string_view json);
Result<Placement> read_placement(const std::filesystem::path& file);

}  // namespace k3pod
