#include "k3pod/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "k3pod/base/check.h"
#include "k3pod/base/text.h"
#include "tiling.h"

namespace k3pod {
namespace {

// Far above any model; products of these and of kMaxBytesPerColumn (even_fill.cc) fit 64 bits.
constexpr int32_t kMaxLayers = 1 << 10;
constexpr int32_t kMaxExperts = 1 << 16;
constexpr int32_t kMaxWidth = 1 << 16;

constexpr std::string_view kStation = "station";

Status check_field(std::string_view name, int32_t value, int32_t min, int32_t max) {
    if (value >= min && value <= max) return Status::ok();
    return invalid_argument(fmt::format("{}: found {}, expected {} to {}", name, value, min, max));
}

Status check_holders(const std::vector<std::string>& holders) {
    if (holders.empty())
        return invalid_argument("holders: the list is empty, expected one or more");
    std::set<std::string_view> seen;
    for (const std::string& name : holders) {
        if (name.empty()) return invalid_argument("holders: a name is empty");
        if (has_controls(name)) {
            return invalid_argument(
                fmt::format("holders: \"{}\" has control characters", escape_controls(name)));
        }
        if (!seen.insert(name).second) {
            return invalid_argument(fmt::format("holders: \"{}\" is there twice", name));
        }
    }
    return Status::ok();
}

Status check_slices(const Placement& placement, std::span<const PlacedSlice> slices) {
    int32_t covered = 0;
    for (const PlacedSlice& slice : slices) {
        const std::string name = fmt::format("slice [{}, {})", slice.begin, slice.end);
        if (slice.holder < 0 || slice.holder >= std::ssize(placement.holders)) {
            return invalid_argument(fmt::format("{}: holder {}, expected 0 to {}", name,
                                                slice.holder, placement.holders.size() - 1));
        }
        if (slice.begin != covered) {
            return invalid_argument(
                fmt::format("{} {} column {}, every column needs one holder", name,
                            slice.begin > covered ? "leaves a gap at" : "holds a second time",
                            std::min(slice.begin, covered)));
        }
        if (slice.end <= slice.begin || slice.end > placement.width ||
            slice.end % kSliceMultiple != 0) {
            return invalid_argument(
                fmt::format("{}: expected an end above {}, up to {} and a multiple "
                            "of {}",
                            name, slice.begin, placement.width, kSliceMultiple));
        }
        covered = slice.end;
    }
    if (covered == placement.width) return Status::ok();
    return invalid_argument(
        fmt::format("columns [{}, {}) have no holder", covered, placement.width));
}

Status check_shape(const Placement& placement, const PlacementShape& shape) {
    const struct {
        const char* name;
        int32_t found, expected;
    } fields[] = {
        {"first_layer", placement.first_layer, shape.first_layer},
        {"num_layers", placement.num_layers, shape.num_layers},
        {"num_experts", placement.num_experts, shape.num_experts},
        {"width", placement.width, shape.width},
    };
    for (const auto& [name, found, expected] : fields) {
        if (found == expected) continue;
        return invalid_argument(
            fmt::format("{}: found {}, the model has {}: the placement was made "
                        "for another model",
                        name, found, expected));
    }
    return Status::ok();
}

// A tier of the station is a holder where its section gives it a budget: "station", "station.hbm".
Status unknown_holder(const std::string& holder, std::span<const HolderBudget> budgets) {
    if (holder == "station" || holder.starts_with("station.")) {
        return invalid_argument(fmt::format(
            "holder \"{0}\" has no budget; set expert_budget in [{0}] of the pod file", holder));
    }
    std::string known;
    for (const HolderBudget& budget : budgets) known += " " + budget.name;
    return invalid_argument(
        fmt::format("holder \"{}\" is no node of this pod; it has:{}", holder, known));
}

Status check_budget(const std::string& holder, int64_t held_bytes,
                    std::span<const HolderBudget> budgets) {
    const auto budget = std::find_if(budgets.begin(), budgets.end(),
                                     [&](const HolderBudget& b) { return b.name == holder; });
    if (budget == budgets.end()) return unknown_holder(holder, budgets);
    if (held_bytes <= budget->budget_bytes) return Status::ok();
    return resource_exhausted(
        fmt::format("{} is to hold {} bytes of experts, its budget is {}: short by {} bytes",
                    holder, held_bytes, budget->budget_bytes, held_bytes - budget->budget_bytes));
}

// New holder numbers; neighbours that come to one holder become one slice.
void renumber(std::vector<PlacedSlice>& slices, std::span<const int32_t> new_idx) {
    std::vector<PlacedSlice> out;
    for (PlacedSlice slice : slices) {
        slice.holder = new_idx[static_cast<size_t>(slice.holder)];
        if (!out.empty() && out.back().holder == slice.holder) {
            out.back().end = slice.end;
        } else {
            out.push_back(slice);
        }
    }
    slices = std::move(out);
}

Status check_replicas(const Placement& placement) {
    const Replica* last = nullptr;
    for (const Replica& replica : placement.replicas) {
        const auto refuse = [&](const std::string& what) {
            return invalid_argument(fmt::format("replica of layer {}, expert {}: {}", replica.layer,
                                                replica.expert, what));
        };
        const int32_t end_layer = placement.first_layer + placement.num_layers;
        if (replica.layer < placement.first_layer || replica.layer >= end_layer) {
            return refuse(fmt::format("layers are {} to {}", placement.first_layer, end_layer - 1));
        }
        if (replica.expert < 0 || replica.expert >= placement.num_experts) {
            return refuse(fmt::format("experts are 0 to {}", placement.num_experts - 1));
        }
        if (last != nullptr &&
            std::pair(last->layer, last->expert) > std::pair(replica.layer, replica.expert)) {
            return refuse("replicas are sorted by layer and expert, it comes too late");
        }
        const Status status = check_slices(placement, replica.slices);
        if (!status) return refuse(status.message());
        last = &replica;
    }
    return Status::ok();
}

}  // namespace

std::span<const PlacedSlice> Placement::of(int32_t layer, int32_t expert) const {
    const int64_t layer_idx = int64_t{layer} - first_layer;
    K3POD_CHECK(layer_idx >= 0 && layer_idx < num_layers && expert >= 0 && expert < num_experts,
                "layer and expert are in the placement");
    return slices[static_cast<size_t>(layer_idx * num_experts + expert)];
}

std::vector<Shard> Placement::shards_of(int32_t holder) const {
    std::vector<Shard> shards;
    for (int32_t layer = first_layer; layer < first_layer + num_layers; ++layer) {
        for (int32_t expert = 0; expert < num_experts; ++expert) {
            for (const PlacedSlice& slice : of(layer, expert)) {
                if (slice.holder == holder)
                    shards.push_back({layer, expert, slice.begin, slice.end});
            }
        }
    }
    return shards;
}

Status check_counts(int32_t first_layer, int32_t num_layers, int32_t num_experts, int32_t width) {
    K3POD_TRY(check_field("first_layer", first_layer, 0, kMaxLayers));
    K3POD_TRY(check_field("num_layers", num_layers, 1, kMaxLayers));
    K3POD_TRY(check_field("num_experts", num_experts, 1, kMaxExperts));
    K3POD_TRY(check_field("width", width, kSliceMultiple, kMaxWidth));
    if (width % kSliceMultiple == 0) return Status::ok();
    return invalid_argument(
        fmt::format("width: found {}, expected a multiple of {}", width, kSliceMultiple));
}

bool is_station_tier(std::string_view holder) {
    return holder == kStation || holder.starts_with(fmt::format("{}.", kStation));
}

Placement runtime_placement(const Placement& placement) {
    Placement out = placement;
    out.replicas.clear();
    out.holders.clear();
    std::vector<int32_t> new_idx;
    int32_t station_idx = -1;
    for (const std::string& name : placement.holders) {
        const auto next_idx = static_cast<int32_t>(out.holders.size());
        const bool is_tier = is_station_tier(name);
        const bool is_known = is_tier && station_idx >= 0;
        new_idx.push_back(is_known ? station_idx : next_idx);
        if (is_known) continue;
        if (is_tier) station_idx = next_idx;
        out.holders.push_back(is_tier ? std::string(kStation) : name);
    }
    for (auto& slices : out.slices) renumber(slices, new_idx);
    return out;
}

Status check_tiling(const Placement& placement) {
    K3POD_TRY(check_counts(placement.first_layer, placement.num_layers, placement.num_experts,
                           placement.width));
    K3POD_TRY(check_holders(placement.holders));
    const auto num_experts = static_cast<size_t>(placement.num_experts);
    const size_t expected = static_cast<size_t>(placement.num_layers) * num_experts;
    if (placement.slices.size() != expected) {
        return invalid_argument(
            fmt::format("slices of {} experts, expected {}", placement.slices.size(), expected));
    }
    for (size_t i = 0; i < placement.slices.size(); ++i) {
        const Status status = check_slices(placement, placement.slices[i]);
        if (status) continue;
        const size_t layer = static_cast<size_t>(placement.first_layer) + i / num_experts;
        return status.with_context(fmt::format("layer {}, expert {}", layer, i % num_experts));
    }
    return check_replicas(placement);
}

std::vector<int64_t> held_bytes(const Placement& placement, const PlacementShape& shape) {
    std::vector<int64_t> bytes(placement.holders.size(), 0);
    const auto add = [&](std::span<const PlacedSlice> slices) {
        for (const PlacedSlice& slice : slices) {
            bytes[static_cast<size_t>(slice.holder)] +=
                (slice.end - slice.begin) * shape.bytes_per_column + shape.bytes_per_shard;
        }
    };
    for (const auto& slices : placement.slices) add(slices);
    for (const Replica& replica : placement.replicas) add(replica.slices);
    return bytes;
}

Status check_placement(const Placement& placement, const PlacementShape& shape,
                       std::span<const HolderBudget> budgets) {
    K3POD_TRY(check_shape(placement, shape));
    K3POD_TRY(check_tiling(placement));
    const std::vector<int64_t> held = held_bytes(placement, shape);
    for (size_t holder = 0; holder < held.size(); ++holder) {
        K3POD_TRY(check_budget(placement.holders[holder], held[holder], budgets));
    }
    return Status::ok();
}

}  // namespace k3pod
