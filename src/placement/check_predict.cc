#include "check_predict.h"

#include <fmt/format.h>

#include <cmath>

namespace k3pod {
namespace {

Status check_range(const char* what, int64_t found, int64_t low, int64_t high) {
    if (found >= low && found <= high) return Status::ok();
    return invalid_argument(fmt::format("{} is {}, expected {} to {}", what, found, low, high));
}

Status check_workload(const Workload& workload) {
    K3POD_TRY(check_range("the batch", workload.sequences, 1, 1024));
    K3POD_TRY(check_range("the number of drafts", workload.drafts, 0, 64));
    K3POD_TRY(check_range("the context", workload.context, 0, int64_t{1} << 30));
    K3POD_TRY(check_range("the prefill chunk", workload.chunk_tokens, 1, 65535));
    if (workload.acceptance >= 0 && workload.acceptance <= 1) return Status::ok();
    return invalid_argument(fmt::format(
        "the acceptance is {}, expected a share from 0 to 1 of the drafts", workload.acceptance));
}

Status check_holders(const PredictInput& input) {
    const auto& names = input.placement.holders;
    if (names.size() != input.holders.size()) {
        return invalid_argument(fmt::format("{} holders are described, the placement has {}",
                                            input.holders.size(), names.size()));
    }
    for (size_t h = 0; h < names.size(); ++h) {
        const PredictHolder& holder = input.holders[h];
        if (holder.name != names[h]) {
            return invalid_argument(fmt::format(
                "holder {} is described as {}, the placement says {}", h, holder.name, names[h]));
        }
        const bool has_rates = std::isfinite(holder.bandwidth) && holder.bandwidth > 0 &&
                               std::isfinite(holder.compute) && holder.compute > 0;
        if (!has_rates) {
            return invalid_argument(
                fmt::format("{} reads {} bytes/s and computes {} FLOP/s, expected both above 0",
                            holder.name, holder.bandwidth, holder.compute));
        }
    }
    return Status::ok();
}

}  // namespace

Status check_predict(const PredictInput& input, const Workload& workload) {
    K3POD_TRY(check_workload(workload));
    const Placement& placement = input.placement;
    const size_t num_experts =
        static_cast<size_t>(placement.num_layers) * static_cast<size_t>(placement.num_experts);
    if (placement.num_layers < 1 || placement.slices.size() != num_experts) {
        return invalid_argument(fmt::format("the placement has {} experts for {} layers of {}",
                                            placement.slices.size(), placement.num_layers,
                                            placement.num_experts));
    }
    const Popularity& popularity = input.popularity;
    const bool same_model = popularity.num_layers == placement.num_layers &&
                            popularity.num_experts == placement.num_experts;
    if (!same_model) {
        return invalid_argument(
            fmt::format("the popularity is of {} layers of {} experts, the placement has {} of {}",
                        popularity.num_layers, popularity.num_experts, placement.num_layers,
                        placement.num_experts));
    }
    K3POD_TRY(check_range("top_k", popularity.top_k, 1, placement.num_experts));
    const int32_t layers = input.model.num_kda_layers + input.model.num_mla_layers;
    K3POD_TRY(check_range("the number of layers with attention", layers,
                          placement.num_layers + input.model.num_dense_layers,
                          placement.num_layers + input.model.num_dense_layers));
    return check_holders(input);
}

}  // namespace k3pod
