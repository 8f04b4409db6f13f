#include "tests/support/golden_cases.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace k3pod::testing {
namespace {

GoldenCase to_case(const nlohmann::json& j) {
    GoldenCase c{.name = j.at("name"),
                 .prompt_ids = j.at("prompt_ids"),
                 .top_ids = j.at("last_logits").at("ids"),
                 .top_logits = j.at("last_logits").at("values"),
                 .logsumexp = j.at("last_logits").at("logsumexp"),
                 .accumulator_l2 = j.at("accumulator_l2"),
                 .routing = {},
                 .greedy_ids = j.at("greedy_ids"),
                 .min_top2_gap = j.at("min_top2_gap")};
    for (const nlohmann::json& r : j.at("routing")) {
        c.routing.push_back(
            {.layer = r.at("layer"), .experts = r.at("experts"), .weights = r.at("weights")});
    }
    return c;
}

}  // namespace

Result<std::vector<GoldenCase>> read_golden_cases(const std::filesystem::path& file) {
    std::ifstream in(file);
    if (!in) return not_found(file.string() + ": cannot be opened");
    std::vector<GoldenCase> cases;
    try {
        const nlohmann::json document = nlohmann::json::parse(in);
        for (const nlohmann::json& j : document.at("cases")) cases.push_back(to_case(j));
    } catch (const nlohmann::json::exception& e) {
        return invalid_argument(file.string() + ": " + e.what());
    }
    return cases;
}

}  // namespace k3pod::testing
