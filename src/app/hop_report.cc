#include "hop_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "table.h"

namespace k3pod {

double HopCase::sum_of_parts() const {
    return (usual.hand_off_us + usual.wire_us + usual.server_us + usual.expert_us) / usual.total_us;
}

HopCase summarise(std::vector<ExchangeParts> exchanges) {
    std::ranges::sort(exchanges, {}, &ExchangeParts::total_us);
    std::vector<double> totals;
    for (const ExchangeParts& parts : exchanges) totals.push_back(parts.total_us);
    HopCase summary;
    summary.total_us = percentiles_of(totals);
    const size_t begin = exchanges.size() * 2 / 5, end = exchanges.size() * 3 / 5;
    const auto share = 1.0 / static_cast<double>(end - begin);
    for (size_t i = begin; i < end; ++i) {
        const ExchangeParts& parts = exchanges[i];
        summary.usual.total_us += parts.total_us * share;
        summary.usual.hand_off_us += parts.hand_off_us * share;
        summary.usual.wire_us += parts.wire_us * share;
        summary.usual.server_us += parts.server_us * share;
        summary.usual.expert_us += parts.expert_us * share;
    }
    return summary;
}

std::string hop_text(std::span<const HopCase> cases) {
    TextTable table({"servers", "rows", "experts", "bulk", "p50 us", "p99", "max", "hand-off",
                     "wire", "server", "expert", "sum"});
    const auto us = [](double value) { return fmt::format("{:.1f}", value); };
    for (const HopCase& one : cases) {
        table.add({fmt::format("{}", one.fan_out), fmt::format("{}", one.rows),
                   one.has_work ? "work" : "no", one.has_bulk ? "runs" : "no", us(one.total_us.p50),
                   us(one.total_us.p99), us(one.total_us.max), us(one.usual.hand_off_us),
                   us(one.usual.wire_us), us(one.usual.server_us), us(one.usual.expert_us),
                   fmt::format("{:.0f} %", 100 * one.sum_of_parts())});
    }
    return table.text();
}

nlohmann::ordered_json hop_json(std::span<const HopCase> cases) {
    using Json = nlohmann::ordered_json;
    Json list = Json::array();
    for (const HopCase& one : cases) {
        list.push_back({{"servers", one.fan_out},
                        {"rows", one.rows},
                        {"expert_work", one.has_work},
                        {"bulk", one.has_bulk},
                        {"p50_us", one.total_us.p50},
                        {"p99_us", one.total_us.p99},
                        {"max_us", one.total_us.max},
                        {"hand_off_us", one.usual.hand_off_us},
                        {"wire_us", one.usual.wire_us},
                        {"server_us", one.usual.server_us},
                        {"expert_us", one.usual.expert_us},
                        {"sum_of_parts", one.sum_of_parts()}});
    }
    return {{"cases", std::move(list)}};
}

}  // namespace k3pod
