// The products of a station's step at K3's shapes, each alone: bytes, time, and the share of what a
// bare read of as many bytes reaches in the same run. Weights rotate over gigabytes, so no cache
// helps. One JSON line a case.

#include <fmt/core.h>

#include <vector>

#include "bench/support/gpu_memory.h"
#include "bench/support/gpu_read_rate.h"
#include "bench/support/or_exit.h"
#include "bench/support/report.h"
#include "k3pod/kernels/gemm.h"

namespace k3pod::bench {
namespace {

using enum WeightFormat;

constexpr int64_t kRotatedBytes = int64_t{6} << 30;
constexpr int32_t kMaxTokens = 2048;
constexpr int32_t kMaxLaunches = 400;
constexpr int32_t kMaxPrefillRows = 50000;

struct Case {
    const char* name;
    WeightFormat format;
    int32_t cols;
    std::vector<int32_t> rows;  // of the bands; gate and up when gated
    bool is_gated = false;
};

const std::vector<Case> kCases = {
    {"KDA in-proj q,k,v,g,f_a,b", kFp8Tile, 7168, {12288, 12288, 12288, 12288, 128, 96}},
    {"KDA f_b", kFp8Tile, 128, {12288}},
    {"o_proj", kFp8Tile, 12288, {7168}},
    {"MLA in-proj q_a,kv_a,g", kFp8Tile, 7168, {1536, 576, 12288}},
    {"MLA q_b", kFp8Tile, 1536, {18432}},
    {"router + latent down", kBf16, 7168, {896, 3584}},
    {"latent up", kBf16, 3584, {7168}},
    {"shared gate+up", kBf16, 7168, {6144, 6144}, true},
    {"shared down", kBf16, 6144, {7168}},
    {"dense down", kBf16, 33792, {7168}},
    {"lm_head", kBf16, 7168, {163840}},
};

WordPattern pattern_of(WeightFormat format) {
    return format == kBf16 ? kBf16Weights : kFp8Weights;
}

// Copies of one case's matrices, one behind the other.
class Copies {
  public:
    Copies(const Case& c, std::byte* data, std::byte* scales) : case_(c) {
        for (const int32_t rows : c.rows) {
            data_bytes_ += aligned(matrix_data_bytes(c.format, rows, c.cols));
            scale_bytes_ += matrix_scale_bytes(c.format, rows, c.cols);
        }
        data_ = data;
        scales_ = scales;
    }
    int64_t bytes() const { return data_bytes_ + scale_bytes_; }
    int32_t count() const {
        return static_cast<int32_t>(std::min<int64_t>(kRotatedBytes / data_bytes_, kMaxLaunches));
    }
    const std::byte* data(int32_t copy) const { return data_ + copy * data_bytes_; }
    double values() const {
        double values = 0;
        for (const int32_t rows : case_.rows) values += double(rows) * case_.cols;
        return values;
    }
    // Scales are a hundredth of the bytes or less, and shared by all copies.
    std::vector<MatrixView> views(int32_t copy) const {
        std::vector<MatrixView> views;
        const std::byte* at = data(copy);
        for (const int32_t rows : case_.rows) {
            views.push_back({case_.format, rows, case_.cols, at, scales_});
            at += aligned(matrix_data_bytes(case_.format, rows, case_.cols));
        }
        return views;
    }

  private:
    const Case& case_;
    std::byte *data_, *scales_;
    int64_t data_bytes_ = 0, scale_bytes_ = 0;
};

struct Memory {
    DeviceBuffer weights = value_or_exit(DeviceBuffer::create(kRotatedBytes));
    DeviceBuffer scales = value_or_exit(DeviceBuffer::create(int64_t{64} << 20));
    DeviceBuffer x = value_or_exit(DeviceBuffer::create(int64_t{kMaxTokens} * 33792 * 4));
    DeviceBuffer y = value_or_exit(DeviceBuffer::create(int64_t{kMaxTokens} * 49376 * 4));
    DeviceBuffer workspace = value_or_exit(DeviceBuffer::create(int64_t{1} << 30));
};

Status launch_case(const Case& c, const Memory& memory, const std::vector<MatrixView>& views,
                   int32_t tokens, CudaStream stream) {
    const kernels::DeviceRows x{.f32 = memory.x.as<float>(), .stride = c.cols};
    if (c.is_gated) {
        return kernels::gated_gemm({.tokens = tokens,
                                    .x = x,
                                    .gate = views[0],
                                    .up = views[1],
                                    .beta = 4,
                                    .linear_beta = 25,
                                    .y = {.f32 = memory.y.as<float>(), .stride = views[0].rows},
                                    .workspace = memory.workspace.data()},
                                   stream);
    }
    std::vector<kernels::GemmBand> bands;
    int64_t at = 0;
    for (const MatrixView& w : views) {
        bands.push_back({.weight = w, .y = {.f32 = memory.y.as<float>() + at, .stride = w.rows}});
        at += int64_t{tokens} * w.rows;
    }
    return kernels::gemm(
        {.tokens = tokens, .x = x, .bands = bands, .workspace = memory.workspace.data()}, stream);
}

void run_case(const Case& c, const Memory& memory, double read_rate) {
    const Copies copies(c, memory.weights.data(), memory.scales.data());
    ok_or_exit(fill_words(memory.weights.data(), kRotatedBytes, pattern_of(c.format), nullptr));
    const double read_us =
        value_or_exit(time_of_launch(copies.count(), [&](int32_t i, CudaStream s) {
            return read_once(copies.data(i), copies.bytes() / 16 * 16, s);
        }));
    for (const int32_t tokens : {1, 2, 4, 8, 16, 64, 512, 2048}) {
        const bool is_head = c.rows.front() > kMaxPrefillRows;
        if (is_head && tokens > 64) continue;  // of a chunk, one row is all that the head sees
        const int32_t launches = tokens <= 64 ? copies.count() : std::min(copies.count(), 8);
        const double us = value_or_exit(time_of_launch(launches, [&](int32_t i, CudaStream s) {
            return launch_case(c, memory, copies.views(i), tokens, s);
        }));
        const auto bytes = static_cast<double>(copies.bytes());
        auto line = report_header("kernels");
        line["case"] = c.name;
        line["tokens"] = tokens;
        line["mbytes"] = bytes * 1e-6;
        line["us"] = us;
        line["gb_s"] = bytes / us * 1e-3;
        line["tflop_s"] = 2 * copies.values() * tokens / us * 1e-6;
        line["bare_read_us"] = read_us;
        line["share_of_bare_read"] = read_us / us;
        line["share_of_read_rate"] = bytes / us * 1e6 / read_rate;
        fmt::print("{}\n", line.dump());
        std::fflush(stdout);
    }
}

}  // namespace
}  // namespace k3pod::bench

int main() {
    using namespace k3pod::bench;
    ok_or_exit(k3pod::use_cuda_device(0));
    const Memory memory;
    ok_or_exit(fill_words(memory.scales.data(), memory.scales.size_bytes(), kFp32Scales, nullptr));
    ok_or_exit(fill_words(memory.x.data(), memory.x.size_bytes(), kFp32Scales, nullptr));
    const double read_rate = value_or_exit(gpu_read_rate());
    for (const Case& c : kCases) run_case(c, memory, read_rate);
    return 0;
}
