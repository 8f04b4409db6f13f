#include "model/cuda/project.h"

#include <algorithm>
#include <vector>

namespace k3pod {
namespace {

// How many of the first bands have one format.
size_t run_length(std::span<const kernels::GemmBand> bands) {
    const auto other = std::ranges::find_if(bands, [&](const kernels::GemmBand& band) {
        return band.weight.format != bands.front().weight.format;
    });
    return static_cast<size_t>(other - bands.begin());
}

}  // namespace

Status project(const StepLaunch& step, const kernels::DeviceRows& x,
               std::span<const kernels::GemmBand> bands) {
    while (!bands.empty()) {
        const size_t count = run_length(bands);
        K3POD_TRY(kernels::gemm(
            {.tokens = step.rows, .x = x, .bands = bands.first(count), .workspace = step.workspace},
            step.stream));
        bands = bands.subspan(count);
    }
    return Status::ok();
}

int64_t project_workspace_bytes(std::span<const MatrixView> matrices, int32_t max_rows) {
    std::vector<kernels::GemmBand> bands;
    for (const MatrixView& matrix : matrices) bands.push_back({.weight = matrix, .y = {}});
    int64_t bytes = 0;
    for (std::span<const kernels::GemmBand> rest(bands); !rest.empty();) {
        const size_t count = run_length(rest);
        bytes = std::max(bytes, kernels::gemm_workspace_bytes(rest.first(count), max_rows));
        rest = rest.subspan(count);
    }
    return bytes;
}

}  // namespace k3pod
