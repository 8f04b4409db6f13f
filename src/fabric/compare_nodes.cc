#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "fabric/checks.h"

namespace k3pod {
namespace {

constexpr int64_t kSkewLimitNs = 1'000'000'000;  // of clocks that only logs are compared by

std::string release_of(const std::string& version) {
    return version.substr(0, version.find(' '));
}

}  // namespace

std::vector<CheckLine> compare_nodes(const Counterpart& self, const Counterpart& other) {
    fabric::Lines lines;
    const auto same = [&](const char* check, const std::string& found, const std::string& expected,
                          const char* remedy) {
        lines.add(found == expected ? Verdict::kOk : Verdict::kFailure, check, found, expected,
                  remedy);
    };
    same("build id", other.identity.build_id, self.identity.build_id,
         "install the same package on every node and restart it");
    same("ucx release", release_of(other.identity.ucx_version),
         release_of(self.identity.ucx_version), "install the same UCX on every node");
    // The answer's way back is in it, far below the limit.
    const int64_t skew = std::llabs(other.unix_time_ns - self.unix_time_ns);
    lines.add(skew <= kSkewLimitNs ? Verdict::kOk : Verdict::kWarning, "clock",
              fmt::format("{:.1f} ms apart", static_cast<double>(skew) / 1e6),
              fmt::format("{} ms or less", kSkewLimitNs / 1'000'000),
              "timedatectl set-ntp true, on both nodes");
    return lines.take();
}

}  // namespace k3pod
