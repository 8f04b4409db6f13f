#include "k3pod/fabric/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/checks.h"

namespace k3pod {
namespace fabric {

std::string gibibytes(int64_t bytes) {
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

namespace {

void check_versions(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    lines.ok("kernel", facts.kernel.empty() ? "not told" : facts.kernel, "any");
    const bool is_needed = needs.transport == TransportName::kRc;
    const std::string found =
        fmt::format("{}, {} RDMA", facts.ucx.version, facts.ucx.has_rdma ? "with" : "without");
    if (!is_needed) return lines.ok("ucx", found, "any (transport is not rc)");
    lines.add(facts.ucx.has_rdma ? Verdict::kOk : Verdict::kFailure, "ucx", found, "with RDMA",
              fmt::format("install UCX with its module libuct_ib beside {}",
                          facts.ucx.library.empty() ? "libucp" : facts.ucx.library));
}

}  // namespace
}  // namespace fabric

std::vector<CheckLine> check_facts(const NodeFacts& facts, const NodeNeeds& needs) {
    fabric::Lines lines;
    fabric::check_rdma(facts, needs, lines);
    fabric::check_routes(facts, needs, lines);
    fabric::check_limits(facts, needs, lines);
    fabric::check_memory(facts, needs, lines);
    fabric::check_gpu(facts, needs, lines);
    fabric::check_versions(facts, needs, lines);
    return lines.take();
}

const char* verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kOk:
            return "ok";
        case Verdict::kWarning:
            return "warning";
        case Verdict::kFailure:
            return "failure";
    }
    return "";
}

Verdict worst_of(std::span<const CheckLine> lines) {
    Verdict worst = Verdict::kOk;
    for (const CheckLine& line : lines) worst = std::max(worst, line.verdict);
    return worst;
}

}  // namespace k3pod
