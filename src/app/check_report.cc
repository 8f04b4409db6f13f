#include "check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "k3pod/fabric/check.h"
#include "table.h"

namespace k3pod {
namespace {

int64_t count(std::span<const CheckedNode> nodes, Verdict verdict) {
    int64_t sum = 0;
    for (const CheckedNode& node : nodes) {
        sum += std::ranges::count(node.lines, verdict, &CheckLine::verdict);
    }
    return sum;
}

}  // namespace

std::string check_text(std::span<const CheckedNode> nodes) {
    TextTable table({"node", "check", "verdict", "found", "expected", "what mends it"});
    for (size_t column = 1; column < 6; ++column) table.left(column);
    for (const CheckedNode& node : nodes) {
        for (const CheckLine& line : node.lines) {
            table.add({node.node, line.check, verdict_name(line.verdict), line.found, line.expected,
                       line.remedy});
        }
    }
    return fmt::format("{}{} ok, {} warnings, {} failures\n", table.text(),
                       count(nodes, Verdict::kOk), count(nodes, Verdict::kWarning),
                       count(nodes, Verdict::kFailure));
}

nlohmann::ordered_json check_json(std::span<const CheckedNode> nodes) {
    using Json = nlohmann::ordered_json;
    Json lines = Json::array();
    for (const CheckedNode& node : nodes) {
        for (const CheckLine& line : node.lines) {
            lines.push_back({{"node", node.node},
                             {"check", line.check},
                             {"verdict", verdict_name(line.verdict)},
                             {"found", line.found},
                             {"expected", line.expected},
                             {"remedy", line.remedy}});
        }
    }
    return {{"warnings", count(nodes, Verdict::kWarning)},
            {"failures", count(nodes, Verdict::kFailure)},
            {"checks", std::move(lines)}};
}

Status report_check(std::span<const CheckedNode> nodes, bool json) {
    if (json) {
        // What drivers say need not be UTF-8.
        fmt::print("{}\n",
                   check_json(nodes).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
        fmt::print("{}", check_text(nodes));
    }
    const int64_t failures = count(nodes, Verdict::kFailure);
    if (failures == 0) return Status::ok();
    std::fflush(stdout);
    return failed_precondition(
        fmt::format("{} of the checks failed; the table says what mends each", failures));
}

}  // namespace k3pod
