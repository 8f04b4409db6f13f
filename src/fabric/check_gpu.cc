// A GPU's clock is what the driver says while it works: the advertised maximum says nothing of a
// cap, nor of a GPU that is stuck in a low-power state.

#include <fmt/format.h>

#include "fabric/checks.h"

namespace k3pod::fabric {
namespace {

// Below these shares the clock under load is not what was asked for.
constexpr double kLeastOfCap = 0.9;
constexpr double kLeastOfMaximum = 0.5;

void check_clock(const GpuFacts& gpu, const NodeNeeds& needs, Lines& lines) {
    const std::string found =
        fmt::format("{} MHz in {}, maximum {} MHz", gpu.clock_mhz,
                    gpu.power_state.empty() ? "?" : gpu.power_state, gpu.max_clock_mhz);
    const bool has_cap = needs.gpu_clock_mhz > 0;
    const double least =
        has_cap ? kLeastOfCap * needs.gpu_clock_mhz : kLeastOfMaximum * gpu.max_clock_mhz;
    const std::string expected =
        has_cap ? fmt::format("at most {} MHz, and near it", needs.gpu_clock_mhz)
                : fmt::format("{:.0f} MHz or more", least);
    if (has_cap && gpu.clock_mhz > needs.gpu_clock_mhz) {
        return lines.add(Verdict::kWarning, "gpu clock", found, expected,
                         fmt::format("nvidia-smi -lgc 0,{}", needs.gpu_clock_mhz));
    }
    lines.add(gpu.clock_mhz >= least ? Verdict::kOk : Verdict::kWarning, "gpu clock", found,
              expected,
              "the GPU may be stuck in a low-power state: take the machine off its power for a "
              "minute (a restart does not clear it)");
}

}  // namespace

void check_gpu(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    if (!needs.needs_gpu) {
        return lines.ok("gpu", "not looked at", "not needed (backend = \"cpu\")");
    }
    if (facts.gpus.empty()) {
        return lines.add(Verdict::kFailure, "gpu", facts.why_no_gpus, "a GPU and its driver",
                         "nvidia-smi must list the GPU; install the driver");
    }
    const GpuFacts& gpu = facts.gpus.front();
    lines.ok("gpu", fmt::format("{}, driver {}", gpu.name, gpu.driver), "a GPU and its driver");
    check_clock(gpu, needs, lines);
}

}  // namespace k3pod::fabric
