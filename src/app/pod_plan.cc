#include "pod_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "k3pod/model/model.h"
#include "k3pod/state/state_store.h"

namespace k3pod {
namespace {

// The station's part of the model and its sequences' state.
std::vector<ReserveLine> station_lines(const PlanModel& model, int32_t num_seqs,
                                       int32_t num_pages) {
    return {{"weights", model.bytes.text_bytes},
            {"kda_slots", StateStore::bytes(state_shape(model.config, num_seqs, 0))},
            {"mla_pages", StateStore::bytes(state_shape(model.config, 0, num_pages))}};
}

MemoryPlan plan_memory(std::string name, const MemoryConfig& config,
                       std::vector<ReserveLine> station = {}) {
    MemoryPlan plan{.name = std::move(name),
                    .memory_bytes = config.memory_bytes,
                    .lines = {},
                    .budget_bytes = config.expert_budget_bytes,
                    .is_budget_given = config.expert_budget_bytes > 0,
                    .bandwidth_bytes_per_s = config.bandwidth_bytes_per_s};
    if (config.memory_bytes == 0) return plan;
    plan.lines = std::move(station);
    plan.lines.insert(plan.lines.end(), config.reserve.begin(), config.reserve.end());
    if (plan.is_budget_given) return plan;
    plan.budget_bytes = config.memory_bytes;
    for (const ReserveLine& line : plan.lines) plan.budget_bytes -= line.bytes;
    return plan;
}

// Whether the pod file gives bandwidths; some without the others are refused.
Result<bool> has_bandwidths(const PodConfig& pod, std::span<const MemoryPlan> memories) {
    std::string with, without;
    for (const MemoryPlan& memory : memories) {
        std::string& names = memory.bandwidth_bytes_per_s > 0 ? with : without;
        names += (names.empty() ? "" : ", ") + memory.name;
    }
    if (with.empty()) return false;
    if (without.empty()) return true;
    return invalid_argument(fmt::format(
        "{}: a bandwidth is given for {} but not for {}; give it for every memory, or for none and "
        "get an even fill",
        pod.file.string(), with, without));
}

Result<Popularity> read_popularity(const PodConfig& pod, const PlanModel& model) {
    std::vector<PickTrace> traces;
    for (const std::filesystem::path& file : pod.placement.traces) {
        K3POD_ASSIGN(PickTrace trace, read_trace(file));
        traces.push_back(std::move(trace));
    }
    const ModelConfig& config = model.config;
    return popularity_of(traces, config.first_dense_layers, config.num_moe_layers(),
                         config.num_experts, config.top_k);
}

ModeRequest requested_mode(ModeChoice choice) {
    switch (choice) {
        case ModeChoice::kAuto:
            return ModeRequest::kAuto;
        case ModeChoice::kWhole:
            return ModeRequest::kWhole;
        case ModeChoice::kSliced:
            return ModeRequest::kSliced;
    }
    return ModeRequest::kAuto;
}

// Whole experts where both modes will do: fewer frames, and a lost node damages fewer experts.
void choose_mode(const PodConfig& pod, PodPlan& plan) {
    const std::vector<HolderBudget> budgets = budgets_of(plan.memories);
    for (const PlacementMode mode : {PlacementMode::kWhole, PlacementMode::kSliced}) {
        const bool is_refused =
            pod.placement.mode ==
            (mode == PlacementMode::kWhole ? ModeChoice::kSliced : ModeChoice::kWhole);
        if (is_refused) continue;
        BudgetCheck check = check_budgets(plan.shape, budgets, mode);
        const bool is_better =
            plan.budgets.holders.empty() ||
            (!plan.budgets.fits && (check.fits || check.held_experts > plan.budgets.held_experts));
        if (!is_better) continue;
        plan.budgets = std::move(check);
        plan.mode = mode;
    }
}

}  // namespace

Result<Capacity> size_capacity(const PodConfig& pod, const ModelConfig& config) {
    Capacity capacity;
    capacity.max_model_len =
        pod.station.max_model_len > 0 ? pod.station.max_model_len : config.max_position_embeddings;
    if (capacity.max_model_len > config.max_position_embeddings) {
        return invalid_argument(fmt::format(
            "[station] max_model_len {} is over the model's max_position_embeddings {}; lower it",
            capacity.max_model_len, config.max_position_embeddings));
    }
    const int64_t tokens = pod.station.kv_tokens > 0
                               ? pod.station.kv_tokens
                               : int64_t{pod.station.max_num_seqs} * capacity.max_model_len;
    const int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
    if (pages > std::numeric_limits<int32_t>::max()) {
        return invalid_argument(fmt::format(
            "[station] an MLA cache of {} tokens is out of reach; lower kv_tokens or max_model_len",
            tokens));
    }
    capacity.num_pages = static_cast<int32_t>(pages);
    const int64_t held_tokens = pages * kPageTokens;
    capacity.is_cut_by_cache = held_tokens < capacity.max_model_len;
    if (capacity.is_cut_by_cache) capacity.max_model_len = static_cast<int32_t>(held_tokens);
    return capacity;
}

std::vector<HolderBudget> budgets_of(std::span<const MemoryPlan> memories) {
    std::vector<HolderBudget> budgets;
    for (const MemoryPlan& memory : memories) {
        budgets.push_back({memory.name, std::max<int64_t>(memory.budget_bytes, 0)});
    }
    return budgets;
}

Release counted_release(const PodConfig& pod, Release release) {
    return pod.placement.pack == PackChoice::kMxfp4 ? Release::kMxfp4 : release;
}

PlacementShape placement_shape(const PodConfig& pod, const PlanModel& model) {
    const ModelConfig& config = model.config;
    const Release release = counted_release(pod, model.bytes.release);
    const int64_t matrices = expert_shard_bytes(config, release, config.moe_intermediate);
    return {.first_layer = config.first_dense_layers,
            .num_layers = config.num_moe_layers(),
            .num_experts = config.num_experts,
            .width = config.moe_intermediate,
            .bytes_per_column = matrices / config.moe_intermediate,
            .bytes_per_shard = expert_file_bytes(config, release) - matrices};
}

Result<std::vector<MemoryPlan>> plan_memories(const PodConfig& pod, const PlanModel& model) {
    const StationConfig& station = pod.station;
    K3POD_ASSIGN(const Capacity capacity, size_capacity(pod, model.config));
    std::vector<ReserveLine> lines = station_lines(model, station.max_num_seqs, capacity.num_pages);
    std::vector<MemoryPlan> memories;
    if (station.expert_budget_bytes > 0) {
        MemoryConfig whole;
        whole.expert_budget_bytes = station.expert_budget_bytes;
        memories.push_back(plan_memory("station", whole));
    }
    if (station.hbm.is_given()) {
        memories.push_back(plan_memory("station.hbm", station.hbm, std::move(lines)));
        lines.clear();
    }
    if (station.host.is_given()) {
        memories.push_back(plan_memory("station.host", station.host, std::move(lines)));
    }
    for (const ExpertConfig& expert : pod.experts) {
        memories.push_back(plan_memory(expert.name, expert));
    }
    return memories;
}

Result<PodPlan> plan_pod(const PodConfig& pod, const PlanModel& model) {
    constexpr uint32_t kFirstEpoch = 1;
    PodPlan plan;
    plan.shape = placement_shape(pod, model);
    K3POD_ASSIGN(plan.memories, plan_memories(pod, model));
    K3POD_ASSIGN(const bool is_timed, has_bandwidths(pod, plan.memories));
    // Read also where nothing uses them: a file that is wrong is an error wherever it is named.
    K3POD_ASSIGN(Popularity popularity, read_popularity(pod, model));
    if (is_timed) {
        plan.problem = PlacementProblem{.shape = plan.shape,
                                        .holders = {},
                                        .popularity = std::move(popularity),
                                        .batch_tokens = pod.placement.batch_tokens};
        for (const HolderBudget& budget : budgets_of(plan.memories)) {
            const auto bandwidth =
                plan.memories[plan.problem->holders.size()].bandwidth_bytes_per_s;
            plan.problem->holders.push_back(
                {budget.name, budget.budget_bytes, static_cast<double>(bandwidth)});
        }
    }
    choose_mode(pod, plan);
    const bool has_deficit = std::any_of(plan.memories.begin(), plan.memories.end(),
                                         [](const MemoryPlan& m) { return m.budget_bytes < 0; });
    if (!plan.budgets.fits || has_deficit) return plan;
    if (!is_timed) {
        K3POD_ASSIGN(plan.placement,
                     place_evenly(plan.shape, budgets_of(plan.memories), plan.mode, kFirstEpoch));
        return plan;
    }
    K3POD_ASSIGN(plan.solved,
                 solve_placement(*plan.problem, requested_mode(pod.placement.mode), kFirstEpoch));
    plan.placement = plan.solved->placement;
    plan.mode = plan.solved->mode;
    plan.budgets = check_budgets(plan.shape, budgets_of(plan.memories), plan.mode);
    return plan;
}

Status does_not_fit(const PodPlan& plan) {
    std::string message;
    for (const MemoryPlan& memory : plan.memories) {
        if (memory.budget_bytes >= 0) continue;
        message += fmt::format("{}: what must lie there is {} bytes over its memory of {}; ",
                               memory.name, -memory.budget_bytes, memory.memory_bytes);
    }
    message += fmt::format("{} experts, the budgets hold {}", plan.budgets.needed_experts,
                           plan.budgets.held_experts);
    for (const HolderNeed& need : plan.budgets.holders) {
        message += fmt::format("; {} needs {} bytes if the others are full, budget {}, short by {}",
                               need.name, need.needed_bytes, need.budget_bytes, need.short_bytes);
    }
    return resource_exhausted(message + "; k3pod plan says what would make it fit");
}

}  // namespace k3pod
