#pragma once
// Where the experts live. A shard is (layer, expert, begin, end): a slice of an expert's width on
// one holder. The shards of an expert tile [0, width) exactly once. Whole experts are one shard [0,
// width). Replicas are further tilings. A holder is an expert server, or a tier of the station.

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

// One more tiling of an expert.
struct Replica {
    int32_t layer = 0;
    int32_t expert = 0;
    std::vector<PlacedSlice> slices{};  // as in Placement::slices
    bool operator==(const Replica&) const = default;
};

struct Placement {
    uint32_t epoch = 1;
    int32_t first_layer = 0;  // first MoE layer
    int32_t num_layers = 0;   // MoE layers
    int32_t num_experts = 0;
    int32_t width = 0;  // moe_intermediate
    // Node names. "station" is the station's memory as a whole, "station.hbm" and "station.host"
    // are its tiers.
    std::vector<std::string> holders;
    // slices[(layer - first_layer) * num_experts + expert], each sorted by begin.
    std::vector<std::vector<PlacedSlice>> slices;
    std::vector<Replica> replicas{};  // sorted by layer and expert; often empty

    std::span<const PlacedSlice> of(int32_t layer, int32_t expert) const;
    // Shards of one holder, sorted by layer, expert, begin. Without replicas.
    std::vector<Shard> shards_of(int32_t holder) const;
    bool operator==(const Placement&) const = default;
};

// Whether the holder is the station or one of its tiers.
bool is_station_tier(std::string_view holder);

// The placement as today's runtime uses it: the station's tiers are one holder "station", where the
// first of them was, and replicas are left out. A placement without either comes back unchanged.
Placement runtime_placement(const Placement& placement);

enum class PlacementMode : uint8_t { kWhole, kSliced };

struct HolderBudget {
    std::string name;
    int64_t budget_bytes = 0;  // 0 holds nothing
};

struct PlacementShape {
    int32_t first_layer = 0, num_layers = 0, num_experts = 0, width = 0;
    // Shard bytes = columns * bytes_per_column + bytes_per_shard.
    int64_t bytes_per_column = 0;
    int64_t bytes_per_shard = 0;  // scalars beside the matrices
    int64_t expert_bytes() const { return width * bytes_per_column + bytes_per_shard; }
};

// Even fill: every holder gets the same number of experts (whole) or of 32-column slices (sliced),
// as far as the budgets allow; one whose budget is smaller is filled and the others share the rest
// evenly. Each layer's experts, and neighbours among them, are spread over the holders in the same
// proportion. The same arguments give the same placement. kResourceExhausted names needed, budget
// and shortfall in bytes, per holder; kInvalidArgument the argument.
Result<Placement> place_evenly(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                               PlacementMode mode, uint32_t epoch);

// Every expert tiled once with multiples of 32, replicas tiled likewise, holders known, shape as
// given (kInvalidArgument); budgets kept, replicas included (kResourceExhausted).
Status check_placement(const Placement& placement, const PlacementShape& shape,
                       std::span<const HolderBudget> budgets);

// Bytes on each holder, replicas included. Holders and layers are as check_placement wants them.
std::vector<int64_t> held_bytes(const Placement& placement, const PlacementShape& shape);

// placement.json, both ways; parse(to_json(p)) == p. Parsing refuses unknown, missing, repeated and
// wrong fields and experts that are not tiled once. Field "replicas" is there when there are any.
std::string to_json(const Placement& placement);
Result<Placement> parse_placement(std::string_view json);
Result<Placement> read_placement(const std::filesystem::path& file);

}  // namespace k3pod
