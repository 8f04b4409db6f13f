// What would make a plan fit that does not.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "k3pod/state/state_store.h"
#include "plan_report.h"
#include "readable.h"

namespace k3pod {
namespace {

// Whether the pod would fit after a change.
Result<bool> fits(const PodConfig& pod, const PlanModel& model) {
    K3POD_ASSIGN(const std::vector<MemoryPlan> memories, plan_memories(pod, model));
    const bool has_deficit = std::any_of(memories.begin(), memories.end(),
                                         [](const MemoryPlan& m) { return m.budget_bytes < 0; });
    if (has_deficit) return false;
    const PlacementShape shape = placement_shape(pod, model);
    for (const PlacementMode mode : {PlacementMode::kWhole, PlacementMode::kSliced}) {
        const ModeChoice same =
            mode == PlacementMode::kWhole ? ModeChoice::kWhole : ModeChoice::kSliced;
        if (pod.placement.mode != ModeChoice::kAuto && pod.placement.mode != same) continue;
        if (check_budgets(shape, budgets_of(memories), mode).fits) return true;
    }
    return false;
}

// The value nearest to `from` for which the changed pod fits, between `from` (which does not) and
// `to`; nothing when not even `to` is enough.
Result<std::optional<int64_t>> nearest_that_fits(
    const PodConfig& pod, const PlanModel& model, int64_t from, int64_t to,
    const std::function<void(PodConfig&, int64_t)>& set) {
    const auto try_value = [&](int64_t value) -> Result<bool> {
        PodConfig changed = pod;
        set(changed, value);
        return fits(changed, model);
    };
    K3POD_ASSIGN(const bool is_enough, try_value(to));
    if (!is_enough) return std::optional<int64_t>();
    while (std::max(from, to) - std::min(from, to) > 1) {
        const int64_t middle = from + (to - from) / 2;
        K3POD_ASSIGN(const bool is_fitting, try_value(middle));
        (is_fitting ? to : from) = middle;
    }
    return std::optional<int64_t>(to);
}

class RemedyFinder {
  public:
    RemedyFinder(const PodConfig& pod, const PlanModel& model, const PodPlan& plan)
        : pod_(pod), model_(model), plan_(plan) {}

    Result<std::vector<std::string>> find() {
        K3POD_TRY(try_settings());
        K3POD_TRY(try_state());
        K3POD_TRY(try_memory());
        K3POD_TRY(try_servers());
        return remedies_;
    }

  private:
    // Costs nothing: the same experts in fewer bytes, or without gaps.
    Status try_settings() {
        PodConfig changed = pod_;
        changed.placement.mode = ModeChoice::kAuto;
        K3POD_ASSIGN(const bool is_mode_enough, fits(changed, model_));
        if (is_mode_enough) remedies_.push_back("[placement] mode = \"auto\"");
        changed = pod_;
        changed.placement.pack = PackChoice::kMxfp4;
        K3POD_ASSIGN(const bool is_pack_enough, fits(changed, model_));
        if (is_pack_enough) {
            remedies_.push_back(fmt::format(
                "[placement] pack = \"mxfp4\": the same values in {} bytes an expert instead of {}",
                placement_shape(changed, model_).expert_bytes(), plan_.shape.expert_bytes()));
        }
        return Status::ok();
    }

    // Costs users: less state on the station.
    Status try_state() {
        K3POD_ASSIGN(const Capacity capacity, size_capacity(pod_, model_.config));
        const auto set_pages = [](PodConfig& pod, int64_t pages) {
            pod.station.kv_tokens = pages * kPageTokens;
        };
        const int64_t least = StateStore::pages_for(capacity.max_model_len);
        if (least < capacity.num_pages) {
            K3POD_ASSIGN(const auto pages,
                         nearest_that_fits(pod_, model_, capacity.num_pages, least, set_pages));
            if (pages) {
                remedies_.push_back(fmt::format("[station] kv_tokens = {} instead of {}",
                                                *pages * kPageTokens,
                                                int64_t{capacity.num_pages} * kPageTokens));
            }
        }
        if (pod_.station.max_num_seqs == 1) return Status::ok();
        const auto set_seqs = [&](PodConfig& pod, int64_t seqs) {
            pod.station.max_num_seqs = static_cast<int32_t>(seqs);
            pod.station.kv_tokens = int64_t{capacity.num_pages} * kPageTokens;
        };
        K3POD_ASSIGN(const auto seqs,
                     nearest_that_fits(pod_, model_, pod_.station.max_num_seqs, 1, set_seqs));
        if (seqs) {
            remedies_.push_back(fmt::format("[station] max_num_seqs = {} instead of {}", *seqs,
                                            pod_.station.max_num_seqs));
        }
        return Status::ok();
    }

    // More room on one holder: the one that needs least.
    Status try_memory() {
        const auto& needs = plan_.budgets.holders;
        const auto least = std::min_element(needs.begin(), needs.end(), [](auto& a, auto& b) {
            return a.short_bytes < b.short_bytes;
        });
        if (least == needs.end() || least->short_bytes <= 0) return Status::ok();
        remedies_.push_back(fmt::format(
            "{} bytes ({}) more for experts on one holder, {} for one: memory, or smaller "
            "reserve lines",
            least->short_bytes, readable_bytes(least->short_bytes), least->name));
        return Status::ok();
    }

    // More machines like the largest there is.
    Status try_servers() {
        constexpr int64_t kMostServers = 128;
        const auto largest =
            std::max_element(pod_.experts.begin(), pod_.experts.end(),
                             [](auto& a, auto& b) { return a.budget_bytes() < b.budget_bytes(); });
        if (largest == pod_.experts.end() || largest->budget_bytes() <= 0) return Status::ok();
        const auto add_servers = [&](PodConfig& pod, int64_t count) {
            for (int64_t i = 0; i < count; ++i) {
                pod.experts.push_back(*largest);
                pod.experts.back().name = fmt::format("new-{}", i + 1);
            }
        };
        K3POD_ASSIGN(const auto count,
                     nearest_that_fits(pod_, model_, 0, kMostServers, add_servers));
        if (count) {
            remedies_.push_back(fmt::format("{} more expert server{} like {}", *count,
                                            *count == 1 ? "" : "s", largest->name));
        }
        return Status::ok();
    }

    const PodConfig& pod_;
    const PlanModel& model_;
    const PodPlan& plan_;
    std::vector<std::string> remedies_;
};

}  // namespace

Result<std::vector<std::string>> find_remedies(const PodConfig& pod, const PlanModel& model,
                                               const PodPlan& plan) {
    return RemedyFinder(pod, model, plan).find();
}

}  // namespace k3pod
