#include "predict_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "fabric_report.h"
#include "table.h"

namespace k3pod {
namespace {

using Json = nlohmann::ordered_json;

std::string ms(double seconds) {
    return fmt::format("{:.2f}", seconds * 1e3);
}
std::string percent(double share) {
    return fmt::format("{:.0f} %", 100 * share);
}

struct Part {
    const char* name;
    double seconds;
};

// In the order of a layer, then what comes once a step; they add up to the step.
std::vector<Part> parts_of(const PredictedStep& step) {
    return {{"attention", step.attention_s},
            {"before the experts: mix, norm, router, latent down", step.moe_front_s},
            {"shared experts, under the exchange", step.shared_s},
            {"experts in the station's main memory", step.local_s},
            {"waiting for experts", step.wait_s},
            {"after the experts: norm, latent up", step.moe_tail_s},
            {"layers without experts", step.dense_s},
            {"head and sampling", step.head_s},
            {"drafts", step.draft_s}};
}

std::string headline(const PredictReport& report) {
    const Prediction& p = report.prediction;
    const Workload& w = p.workload;
    std::string drafts = "no drafts";
    if (w.drafts > 0) {
        drafts = fmt::format("{} drafts of which {} are right", w.drafts, percent(w.acceptance));
    }
    return fmt::format(
        "{}: {} at {} tokens of context, {}\n{:.1f} tokens/s; a step takes {} ms (+- {}) and gives "
        "{:.2f} tokens a sequence\nlimit: {}\n",
        report.setup.pod_name,
        w.sequences == 1 ? "1 sequence" : fmt::format("{} sequences", w.sequences), w.context,
        drafts, p.tokens_per_s, ms(p.step.total_s), ms(p.step.error_s), w.tokens_per_step(),
        p.bound);
}

std::string step_table(const PredictedStep& step) {
    TextTable table({"one step", "ms", "share"});
    for (const auto& [name, seconds] : parts_of(step)) {
        if (seconds > 0) table.add({name, ms(seconds), percent(seconds / step.total_s)});
    }
    table.add({"sum", ms(step.total_s), "100 %"});
    return table.text();
}

std::string holder_table(const PredictedStep& step) {
    TextTable table({"holder", "GB read", "busy ms", "exchange ms", "slack ms", "last"});
    table.add({"station", "", "", "", "", percent(step.station_last_share)});
    for (const PredictedHolder& holder : step.holders) {
        const bool is_station = holder.kind == HolderKind::kStation;
        table.add({holder.name, fmt::format("{:.2f}", holder.bytes / 1e9), ms(holder.busy_s),
                   ms(holder.exchange_s), ms(holder.slack_s),
                   is_station ? "" : percent(holder.last_share)});
    }
    return table.text();
}

std::string overlap_lines(const Prediction& p) {
    if (p.alternating_s == 0) {
        return "two half batches in turn: not with one sequence\n";
    }
    return fmt::format("two half batches in turn: {:.1f} tokens/s, a step of {} ms; {}\n",
                       p.alternating_tokens_per_s, ms(p.alternating_s),
                       p.alternating_s < p.step.total_s
                           ? "faster than shared experts under the exchange alone"
                           : "no faster than shared experts under the exchange alone");
}

std::string purchase_table(const PredictReport& report) {
    const Prediction& p = report.prediction;
    TextTable table({"with", "tokens/s", "more", "prefill tokens/s", "more"});
    const auto more = [](double now, double before) {
        return fmt::format("{:+.1f} %", 100 * (now / before - 1));
    };
    for (const Purchase& purchase : report.purchases) {
        table.add({purchase.what, fmt::format("{:.1f}", purchase.tokens_per_s),
                   more(purchase.tokens_per_s, p.tokens_per_s),
                   fmt::format("{:.0f}", purchase.prefill_tokens_per_s),
                   more(purchase.prefill_tokens_per_s, p.prefill_tokens_per_s)});
    }
    return table.text();
}

Json step_json(const PredictedStep& step) {
    Json holders = Json::array();
    for (const PredictedHolder& holder : step.holders) {
        holders.push_back({{"name", holder.name},
                           {"bytes", holder.bytes},
                           {"busy_s", holder.busy_s},
                           {"exchange_s", holder.exchange_s},
                           {"slack_s", holder.slack_s},
                           {"last_share", holder.last_share}});
    }
    return {{"attention_s", step.attention_s}, {"moe_front_s", step.moe_front_s},
            {"shared_s", step.shared_s},       {"local_s", step.local_s},
            {"wait_s", step.wait_s},           {"moe_tail_s", step.moe_tail_s},
            {"dense_s", step.dense_s},         {"head_s", step.head_s},
            {"draft_s", step.draft_s},         {"total_s", step.total_s},
            {"error_s", step.error_s},         {"station_last_share", step.station_last_share},
            {"holders", std::move(holders)}};
}

Json constants_json(const PredictConstants& constants) {
    Json json = Json::object();
    for (const ConstantLine& line : list_constants(constants)) {
        json[line.section][line.key] = {{"value", line.value}, {"source", line.source}};
    }
    return json;
}

}  // namespace

std::string predict_text(const PredictReport& report) {
    const Prediction& p = report.prediction;
    std::string text = headline(report) + "\n" + step_table(p.step) + "\n" + holder_table(p.step) +
                       "\n" + overlap_lines(p);
    text += fmt::format("prefill: {:.0f} tokens/s in chunks of {}, one every {} ms\n",
                        p.prefill_tokens_per_s, p.workload.chunk_tokens, ms(p.prefill.total_s));
    if (report.tensor_parallel_tokens_per_s > 0) {
        text += fmt::format(
            "the expert servers as one tensor-parallel group, were it to hold the model, could at "
            "most read {:.1f} tokens/s\n",
            report.tensor_parallel_tokens_per_s);
    }
    if (!report.purchases.empty()) text += "\n" + purchase_table(report);
    if (!report.setup.overfull.empty()) {
        text += fmt::format("\nPROBLEM: {}; this pod cannot run the placement\n",
                            report.setup.overfull);
    }
    const std::string findings = fabric_text(report.setup.fabric);
    if (!findings.empty()) text += "\n" + findings;
    return text;
}

std::string predict_json(const PredictReport& report) {
    const Prediction& p = report.prediction;
    const Workload& w = p.workload;
    Json purchases = Json::array();
    for (const Purchase& purchase : report.purchases) {
        purchases.push_back({{"what", purchase.what},
                             {"tokens_per_s", purchase.tokens_per_s},
                             {"prefill_tokens_per_s", purchase.prefill_tokens_per_s}});
    }
    const Json json = {
        {"pod", report.setup.pod_name},
        {"workload",
         {{"batch", w.sequences},
          {"context", w.context},
          {"drafts", w.drafts},
          {"acceptance", w.acceptance},
          {"chunk", w.chunk_tokens}}},
        {"tokens_per_s", p.tokens_per_s},
        {"tokens_per_step", w.tokens_per_step()},
        {"bound", p.bound},
        {"step", step_json(p.step)},
        {"alternating", p.alternating_s == 0 ? Json(nullptr)
                                             : Json{{"step_s", p.alternating_s},
                                                    {"tokens_per_s", p.alternating_tokens_per_s}}},
        {"prefill", {{"tokens_per_s", p.prefill_tokens_per_s}, {"step", step_json(p.prefill)}}},
        {"tensor_parallel_bound_tokens_per_s", report.tensor_parallel_tokens_per_s},
        {"purchases", std::move(purchases)},
        {"overfull", report.setup.overfull},
        {"fabric", fabric_json(report.setup.fabric)},
        {"constants", constants_json(report.setup.constants)}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace k3pod
