#include "plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fabric_report.h"
#include "k3pod/model/model.h"
#include "k3pod/state/state_store.h"
#include "readable.h"
#include "table.h"

namespace k3pod {
namespace {

constexpr double kMs = 1e3;

const char* mode_name(PlacementMode mode) {
    return mode == PlacementMode::kWhole ? "whole" : "sliced";
}

const char* format_name(Release release) {
    return release == Release::kNvfp4 ? "nvfp4" : "mxfp4";
}

// What one holder got.
struct Holding {
    int64_t experts = 0;  // with a shard there
    double width = 0;     // mean columns of these
    int64_t replicas = 0;
    int64_t bytes = 0;  // replicas included
};

std::vector<Holding> holdings_of(const PodPlan& plan) {
    const Placement& placement = *plan.placement;
    std::vector<Holding> holdings(placement.holders.size());
    for (const auto& slices : placement.slices) {
        for (const PlacedSlice& slice : slices) {
            Holding& holding = holdings[static_cast<size_t>(slice.holder)];
            ++holding.experts;
            holding.width += slice.end - slice.begin;
        }
    }
    for (const Replica& replica : placement.replicas) {
        ++holdings[static_cast<size_t>(replica.slices.front().holder)].replicas;
    }
    const std::vector<int64_t> bytes = held_bytes(placement, plan.shape);
    for (size_t h = 0; h < holdings.size(); ++h) {
        holdings[h].bytes = bytes[h];
        holdings[h].width /= static_cast<double>(std::max<int64_t>(holdings[h].experts, 1));
    }
    return holdings;
}

std::string model_text(const PlanReport& report) {
    const ModelBytes& bytes = report.model.bytes;
    return fmt::format(
        "model: {} experts of {} B ({}), {} of everything else, of which {} of vision are left "
        "out; "
        "{} B in all ({})\n",
        grouped(bytes.num_experts), grouped(bytes.expert_bytes),
        readable_bytes(bytes.num_experts * bytes.expert_bytes), readable_bytes(bytes.other_bytes()),
        readable_bytes(bytes.vision_bytes), grouped(bytes.total_bytes()),
        readable_bytes(bytes.total_bytes()));
}

// Every memory from what it has down to what is left, once for holders that are alike.
std::string memories_text(const PlanReport& report) {
    std::vector<std::pair<std::string, std::string>> rows;  // what lies there, whose it is
    for (const MemoryPlan& memory : report.plan.memories) {
        const int64_t sizes[] = {memory.memory_bytes, memory.budget_bytes};
        const SizeUnit unit = size_unit(sizes);
        std::string text;
        if (memory.memory_bytes > 0) {
            text = fmt::format("{} {}", in_unit(memory.memory_bytes, unit), unit.name);
        }
        for (const ReserveLine& line : memory.lines) {
            text += fmt::format(" - {} {}", line.name, in_unit(line.bytes, unit));
        }
        text += fmt::format("{}{} {} for experts{}", text.empty() ? "" : " = ",
                            in_unit(memory.budget_bytes, unit), unit.name,
                            memory.is_budget_given ? ", as the pod file says" : "");
        const auto same = std::find_if(rows.begin(), rows.end(),
                                       [&](const auto& row) { return row.first == text; });
        if (same == rows.end()) {
            rows.emplace_back(text, memory.name);
        } else {
            same->second += ", " + memory.name;
        }
    }
    std::string out = "\n";
    for (const auto& [text, names] : rows) out += fmt::format("{}: {}\n", names, text);
    return out;
}

// What a sequence and a token of cache cost in experts.
std::string trades_text(const PlanReport& report) {
    const ModelConfig& config = report.model.config;
    const auto expert = static_cast<double>(report.plan.shape.expert_bytes());
    const int64_t slot = StateStore::bytes(state_shape(config, 1, 0));
    const int64_t page = StateStore::bytes(state_shape(config, 0, 1));
    return fmt::format(
        "\nA sequence more costs {:.1f} MiB of KDA state or {:.1f} experts, 65,536 tokens more of "
        "MLA cache {} or {:.1f} experts.\n",
        static_cast<double>(slot) / (1 << 20), static_cast<double>(slot) / expert,
        readable_bytes(page * 65536 / kPageTokens),
        static_cast<double>(page * 65536 / kPageTokens) / expert);
}

std::string holders_text(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    const std::vector<Holding> holdings = holdings_of(plan);
    std::vector<int64_t> budgets;
    for (const MemoryPlan& memory : plan.memories) budgets.push_back(memory.budget_bytes);
    const SizeUnit unit = size_unit(budgets);
    const auto title = [&](const char* what) { return fmt::format("{} {}", what, unit.name); };
    TextTable table({"holder", title("budget"), "experts", "columns", "replicas", title("held"),
                     title("spare"), "spare experts", "ms a layer", "reads %"});
    for (size_t h = 0; h < holdings.size(); ++h) {
        const Holding& holding = holdings[h];
        const int64_t budget = std::max<int64_t>(plan.memories[h].budget_bytes, 0);
        const int64_t spare = budget - holding.bytes;
        std::string time = "-", reads = "-";
        if (plan.solved) {
            time = fmt::format("{:.4f}", plan.solved->times.holder_s[h] * kMs);
            reads = fmt::format("{:.1f}", plan.solved->times.picks_share[h] * 100);
        }
        table.add({plan.memories[h].name, in_unit(budget, unit), grouped(holding.experts),
                   fmt::format("{:.0f}", holding.width), grouped(holding.replicas),
                   in_unit(holding.bytes, unit), in_unit(spare, unit),
                   grouped(spare / plan.shape.expert_bytes()), time, reads});
    }
    const int64_t spare = plan.budgets.spare_experts();
    return fmt::format("\n{}\nspare before replicas: {} experts, {}\n", table.text(),
                       grouped(spare), readable_bytes(spare * plan.shape.expert_bytes()));
}

std::string times_text(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    if (!plan.solved) {
        return "\nno bandwidths in the pod file: an even fill whatever the traces say, of which no "
               "time is "
               "known\n";
    }
    const Plan& solved = *plan.solved;
    std::string out = fmt::format(
        "\nslowest holder: {:.4f} ms a layer (standard error {:.4f}), {:.2f} ms a step of {} "
        "token{}; lower bound {:.4f} ms, gap {:.1f} %; even fill {:.4f} ms\n",
        solved.times.slowest_s * kMs, solved.times.slowest_error_s * kMs,
        solved.times.slowest_s * kMs * plan.shape.num_layers, solved.times.tokens,
        solved.times.tokens == 1 ? "" : "s", solved.bound_s * kMs, solved.gap() * 100,
        solved.even_fill_s * kMs);
    if (!plan.placement->replicas.empty()) {
        out += fmt::format(
            "{} replicas in the spare room: {:.4f} ms a layer once steps choose among copies; this "
            "version reads the first copy\n",
            grouped(std::ssize(plan.placement->replicas)), solved.replicas_s * kMs);
    }
    TextTable table({"tokens a step", "busiest to mean", "+-", "slowest ms a layer", "+-"});
    for (const StepTimes& step : report.steps) {
        table.add({fmt::format("{}", step.tokens), fmt::format("{:.3f}", step.busiest_to_mean),
                   fmt::format("{:.3f}", step.busiest_to_mean_error),
                   fmt::format("{:.4f}", step.slowest_s * kMs),
                   fmt::format("{:.4f}", step.slowest_error_s * kMs)});
    }
    return out +
           "\nbusiest expert server to the mean of all, over random steps (+- standard "
           "error):\n" +
           table.text();
}

std::string shortfall_text(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    std::string out;
    for (const MemoryPlan& memory : plan.memories) {
        if (memory.budget_bytes >= 0) continue;
        out +=
            fmt::format("\n{}: what must lie there is {} B over its memory of {} B\n", memory.name,
                        grouped(-memory.budget_bytes), grouped(memory.memory_bytes));
    }
    out += fmt::format("\nDOES NOT FIT: {} experts, the budgets hold {}\n",
                       grouped(plan.budgets.needed_experts), grouped(plan.budgets.held_experts));
    TextTable table({"holder", "needed B", "budget B", "short by B", "needed experts",
                     "budget experts", "short by experts"});
    for (const HolderNeed& need : plan.budgets.holders) {
        table.add({need.name, grouped(need.needed_bytes), grouped(need.budget_bytes),
                   grouped(need.short_bytes), grouped(need.needed_experts),
                   grouped(need.budget_experts), grouped(need.short_experts)});
    }
    out += "needed: what each would have to hold if every other holder were full\n" + table.text();
    if (report.remedies.empty()) return out + "\nnothing small would make it fit\n";
    out += "\nwhat would make it fit, the cheapest first:\n";
    for (const std::string& remedy : report.remedies) out += "  - " + remedy + "\n";
    return out;
}

// An even fill has no use for it.
const char* popularity_text(const PlanReport& report) {
    if (!report.plan.problem) return "not used";
    return report.pod.placement.traces.empty() ? "uniform" : "of the traces";
}

nlohmann::ordered_json step_json(const StepTimes& step) {
    return {{"tokens", step.tokens},
            {"slowest_s", step.slowest_s},
            {"slowest_error_s", step.slowest_error_s},
            {"busiest_to_mean", step.busiest_to_mean},
            {"busiest_to_mean_error", step.busiest_to_mean_error}};
}

nlohmann::ordered_json holder_json(const PlanReport& report, size_t h,
                                   const std::vector<Holding>& holdings) {
    const PodPlan& plan = report.plan;
    const MemoryPlan& memory = plan.memories[h];
    const HolderNeed& need = plan.budgets.holders[h];
    nlohmann::ordered_json lines = nlohmann::ordered_json::object();
    for (const ReserveLine& line : memory.lines) lines[line.name] = line.bytes;
    nlohmann::ordered_json out = {{"name", memory.name},
                                  {"memory_bytes", memory.memory_bytes},
                                  {"reserved_bytes", lines},
                                  {"budget_bytes", memory.budget_bytes},
                                  {"budget_experts", need.budget_experts},
                                  {"bandwidth_bytes_per_s", memory.bandwidth_bytes_per_s},
                                  {"needed_bytes", need.needed_bytes},
                                  {"needed_experts", need.needed_experts},
                                  {"short_bytes", need.short_bytes},
                                  {"short_experts", need.short_experts}};
    if (holdings.empty()) return out;
    out["experts"] = holdings[h].experts;
    out["mean_columns"] = holdings[h].width;
    out["replicas"] = holdings[h].replicas;
    out["held_bytes"] = holdings[h].bytes;
    if (!plan.solved) return out;
    out["layer_s"] = plan.solved->times.holder_s[h];
    out["reads_share"] = plan.solved->times.picks_share[h];
    return out;
}

}  // namespace

Result<PlanReport> make_plan_report(const PodConfig& pod, const PlanModel& model,
                                    const PodPlan& plan) {
    PlanReport report{pod, model, plan, {}, {}, check_pod_fabric(pod)};
    if (!plan.placement) {
        K3POD_ASSIGN(report.remedies, find_remedies(pod, model, plan));
        return report;
    }
    if (!plan.solved) return report;
    for (const int32_t tokens : {1, 4, 16, 64}) {
        report.steps.push_back(expected_times(*plan.placement, *plan.problem, tokens));
    }
    return report;
}

std::string plan_text(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    std::string out = model_text(report);
    out += fmt::format("experts are counted as {}, {} B each; mode {}; popularity {}\n",
                       format_name(counted_release(report.pod, report.model.bytes.release)),
                       grouped(plan.shape.expert_bytes()), mode_name(plan.mode),
                       popularity_text(report));
    out += memories_text(report) + trades_text(report);
    out += plan.placement ? holders_text(report) + times_text(report) : shortfall_text(report);
    const std::string findings = fabric_text(report.fabric);
    return findings.empty() ? out : out + "\ncables and power:\n" + findings;
}

std::string plan_json(const PlanReport& report) {
    const PodPlan& plan = report.plan;
    const ModelBytes& bytes = report.model.bytes;
    nlohmann::ordered_json out = {
        {"pod", report.pod.name},
        {"fits", plan.placement.has_value()},
        {"mode", mode_name(plan.mode)},
        {"pack", format_name(counted_release(report.pod, bytes.release))},
        {"model",
         {{"experts", bytes.num_experts},
          {"expert_bytes", bytes.expert_bytes},
          {"text_bytes", bytes.text_bytes},
          {"vision_bytes", bytes.vision_bytes},
          {"total_bytes", bytes.total_bytes()}}},
        {"counted_expert_bytes", plan.shape.expert_bytes()},
        {"needed_experts", plan.budgets.needed_experts},
        {"held_experts", plan.budgets.held_experts},
        {"spare_experts", plan.budgets.spare_experts()},
        {"spare_bytes", plan.budgets.spare_experts() * plan.shape.expert_bytes()}};
    const std::vector<Holding> holdings =
        plan.placement ? holdings_of(plan) : std::vector<Holding>();
    out["holders"] = nlohmann::ordered_json::array();
    for (size_t h = 0; h < plan.memories.size(); ++h) {
        out["holders"].push_back(holder_json(report, h, holdings));
    }
    if (plan.solved) {
        out["step"] = step_json(plan.solved->times);
        out["step"]["bound_s"] = plan.solved->bound_s;
        out["step"]["gap"] = plan.solved->gap();
        out["step"]["even_fill_s"] = plan.solved->even_fill_s;
        out["step"]["with_replicas_s"] = plan.solved->replicas_s;
        out["steps"] = nlohmann::ordered_json::array();
        for (const StepTimes& step : report.steps) out["steps"].push_back(step_json(step));
    }
    if (!plan.placement) out["remedies"] = report.remedies;
    out["fabric"] = fabric_json(report.fabric);
    return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace k3pod
