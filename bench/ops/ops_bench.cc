// Speed of the CPU ops on one core. Prints one JSON line a case, with the ceilings measured in the
// same run beside it: floating point rate in registers, and read bandwidth from the memory level
// that the case's weights live in.

#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/ops/ceilings.h"
#include "bench/ops/measure.h"
#include "k3pod/device/matrix.h"
#include "k3pod/ops/kda.h"
#include "k3pod/ops/linear.h"
#include "k3pod/ops/mla.h"
#include "k3pod/ops/mlp.h"

namespace k3pod::bench {
namespace {

std::string first_line_of(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::array<char, 256> line{};
    if (!pipe || !fgets(line.data(), line.size(), pipe.get())) return "unknown";
    return std::string(line.data(), strcspn(line.data(), "\n"));
}

std::string machine_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown";
}

struct Work {
    std::string name;
    double flops = 0;
    double weight_bytes = 0;
};

class Report {
  public:
    Report() {
        constexpr int64_t kRounds = 2000;
        float sink = 1;
        const auto sample = measure([&] { flops_ = multiply_add(kRounds, &sink); });
        peak_gflops_ = static_cast<double>(flops_) / sample.median_us * 1e-3;
    }

    void print(const Work& work, const Sample& sample) {
        const double gflops = work.flops / sample.median_us * 1e-3;
        const double gbytes = work.weight_bytes / sample.median_us * 1e-3;
        fmt::print(
            R"({{"bench":"ops","case":"{}","median_us":{:.3f},"p10_us":{:.3f},"p90_us":{:.3f},)"
            R"("gflops":{:.2f},"peak_gflops":{:.1f},"weight_gb_s":{:.2f},"read_gb_s":{:.1f},)"
            R"("simd":"{}","machine":"{}","commit":"{}"}})"
            "\n",
            work.name, sample.median_us, sample.p10_us, sample.p90_us, gflops, peak_gflops_, gbytes,
            read_rate(work.weight_bytes), instruction_set(), machine_, commit_);
        std::fflush(stdout);
    }

  private:
    // Of a buffer as large as the weights, so from the same level of memory.
    static double read_rate(double bytes) {
        if (bytes < 1024) return 0;
        const HostBuffer buffer(static_cast<int64_t>(bytes));
        std::memset(const_cast<std::byte*>(buffer.data()), 1, static_cast<size_t>(bytes));
        float sink = 0;
        const std::span all(buffer.data(), static_cast<size_t>(bytes));
        return bytes / measure([&] { read_all(all, &sink); }).median_us * 1e-3;
    }

    std::string machine_ = machine_name();
    std::string commit_ = first_line_of("git -C " K3POD_SOURCE_DIR " rev-parse --short HEAD");
    int64_t flops_ = 0;
    double peak_gflops_ = 0;
};

std::mt19937_64 generator(1);

std::vector<float> normals(int64_t n, float deviation = 1.0f) {
    std::normal_distribution<float> distribution(0.0f, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = distribution(generator);
    return values;
}

// Bits that are ordinary numbers in every format: no NaN, no subnormal fp32.
Matrix plain_matrix(WeightFormat format, int32_t rows, int32_t cols) {
    Matrix m(format, rows, cols);
    for (auto& b : m.mutable_data()) b = static_cast<std::byte>(0x30 + generator() % 16);
    const std::byte scale{format == WeightFormat::kMxfp4 ? uint8_t{124} : uint8_t{0x3c}};
    for (auto& b : m.mutable_scales()) b = scale;
    return m;
}

double bytes_of(const MatrixView& m) {
    return static_cast<double>(matrix_data_bytes(m.format, m.rows, m.cols) +
                               matrix_scale_bytes(m.format, m.rows, m.cols));
}

void bench_linear(Report& report) {
    struct Shape {
        int32_t rows, cols;
    };
    for (const Shape shape : {Shape{384, 256}, Shape{12288, 7168}}) {
        for (const WeightFormat format :
             {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile, WeightFormat::kNvfp4,
              WeightFormat::kMxfp4}) {
            const Matrix w = plain_matrix(format, shape.rows, shape.cols);
            for (const int32_t tokens : {1, 4, 16, 256}) {
                const double macs = double{1} * tokens * shape.rows * shape.cols;
                if (macs > 3e9) continue;
                const auto x = normals(int64_t{tokens} * shape.cols);
                std::vector<float> y(static_cast<size_t>(tokens) * static_cast<size_t>(shape.rows));
                const auto sample = measure([&] { ops::linear(w.view(), tokens, x, y); });
                report.print({fmt::format("linear {} {}x{} T={}", weight_format_name(format),
                                          shape.rows, shape.cols, tokens),
                              2 * macs, bytes_of(w.view())},
                             sample);
            }
        }
    }
}

// Every product of one token of the demo model's station: 9 layers of hidden size 256.
void bench_station_products(Report& report) {
    std::vector<Matrix> weights;
    const auto add = [&](int count, WeightFormat format, std::vector<std::pair<int, int>> shapes) {
        for (int i = 0; i < count; ++i) {
            for (const auto& [rows, cols] : shapes)
                weights.push_back(plain_matrix(format, rows, cols));
        }
    };
    add(6, WeightFormat::kFp8Tile,
        {{384, 256},
         {384, 256},
         {384, 256},
         {384, 256},
         {256, 384},
         {128, 256},
         {384, 128},
         {3, 256}});
    add(3, WeightFormat::kFp8Tile,
        {{192, 256}, {576, 192}, {576, 256}, {768, 512}, {384, 256}, {256, 384}});
    add(8, WeightFormat::kBf16,
        {{32, 256}, {128, 256}, {256, 128}, {256, 256}, {256, 256}, {256, 256}});
    add(1, WeightFormat::kBf16, {{768, 256}, {768, 256}, {256, 768}, {2304, 256}});
    for (const int32_t tokens : {1, 16}) {
        double macs = 0;
        double bytes = 0;
        for (const Matrix& w : weights) {
            macs += double{1} * tokens * w.view().rows * w.view().cols;
            bytes += bytes_of(w.view());
        }
        const auto x = normals(int64_t{tokens} * 768);
        std::vector<float> y(static_cast<size_t>(tokens) * 2304);
        const auto sample = measure([&] {
            for (const Matrix& w : weights) {
                const auto in = static_cast<size_t>(tokens) * static_cast<size_t>(w.view().cols);
                const auto out = static_cast<size_t>(tokens) * static_cast<size_t>(w.view().rows);
                ops::linear(w.view(), tokens, std::span(x).first(in), std::span(y).first(out));
            }
        });
        report.print({fmt::format("k3-tiny station products T={}", tokens), 2 * macs, bytes},
                     sample);
    }
}

void bench_kda(Report& report) {
    constexpr int32_t kHeads = 3;
    constexpr int32_t kDim = 128;
    for (const int32_t tokens : {1, 16, 256}) {
        const int64_t size = int64_t{tokens} * kHeads * kDim;
        auto q = normals(size);
        auto k = normals(size);
        ops::kda_normalize_qk(kDim, 1e-6f, q, k);
        const auto v = normals(size);
        const std::vector<float> log_decay(static_cast<size_t>(size), -0.5f);
        const std::vector<float> beta(static_cast<size_t>(tokens) * kHeads, 0.5f);
        auto state = normals(int64_t{kHeads} * kDim * kDim);
        std::vector<float> out(static_cast<size_t>(size));
        const auto sample = measure([&] {
            ops::kda_recurrence({tokens, kHeads, kDim, q, k, v, log_decay, beta, state, out});
        });
        const double steps = double{1} * tokens * kHeads;
        report.print({fmt::format("kda_recurrence heads={} T={}", kHeads, tokens),
                      7 * steps * kDim * kDim, 4.0 * kHeads * kDim * kDim},
                     sample);
    }
}

void bench_mla(Report& report) {
    constexpr ops::MlaShape kShape{.heads = 3, .nope = 128, .rope = 64, .value = 128, .rank = 512};
    constexpr int32_t kPageTokens = 64;
    for (const int32_t context : {256, 4096}) {
        const auto latents = normals(int64_t{context} * kShape.cache_width());
        std::vector<Bf16> cache;
        for (const float x : latents) cache.push_back(to_bf16(x));
        std::vector<std::span<const Bf16>> pages;
        const auto page = static_cast<size_t>(kPageTokens * kShape.cache_width());
        for (size_t at = 0; at < cache.size(); at += page) {
            pages.push_back(std::span(cache).subspan(at, page));
        }
        for (const int32_t tokens : {1, 64}) {
            const auto q = normals(int64_t{tokens} * kShape.heads * kShape.cache_width());
            std::vector<float> out(static_cast<size_t>(tokens * kShape.heads * kShape.rank));
            const auto sample = measure([&] {
                ops::mla_attend({.shape = kShape,
                                 .tokens = tokens,
                                 .position = context - tokens,
                                 .latent_q = q,
                                 .scale = 0.07f,
                                 .cache = {pages, kPageTokens},
                                 .latent_out = out});
            });
            const double pairs = double{1} * tokens * kShape.heads * context;
            report.print(
                {fmt::format("mla_attend heads={} context={} T={}", kShape.heads, context, tokens),
                 2 * pairs * (kShape.cache_width() + kShape.rank),
                 2.0 * context * kShape.cache_width()},
                sample);
        }
    }
}

void bench_experts(Report& report) {
    struct Shape {
        int32_t latent, width;
    };
    constexpr int32_t kExperts = 4;
    for (const Shape shape : {Shape{128, 128}, Shape{3584, 384}}) {
        for (const int32_t rows : {1, 16}) {
            std::vector<Matrix> weights;
            std::vector<ops::WeightedRow> entries;
            for (int32_t r = 0; r < rows; ++r) entries.push_back({r, 0.25f});
            for (int32_t e = 0; e < kExperts; ++e) {
                weights.push_back(plain_matrix(WeightFormat::kMxfp4, shape.width, shape.latent));
                weights.push_back(plain_matrix(WeightFormat::kMxfp4, shape.width, shape.latent));
                weights.push_back(plain_matrix(WeightFormat::kMxfp4, shape.latent, shape.width));
            }
            std::vector<ops::ExpertGroup> groups;
            double bytes = 0;
            for (size_t i = 0; i < weights.size(); i += 3) {
                groups.push_back(
                    {weights[i].view(), weights[i + 1].view(), weights[i + 2].view(), entries});
                for (size_t j = i; j < i + 3; ++j) bytes += bytes_of(weights[j].view());
            }
            std::vector<Bf16> z;
            for (const float v : normals(int64_t{rows} * shape.latent)) z.push_back(to_bf16(v));
            std::vector<float> scratch(static_cast<size_t>(
                ops::grouped_experts_scratch_floats(shape.latent, shape.width)));
            std::vector<float> out(z.size());
            const auto sample = measure([&] {
                ops::grouped_experts({rows, shape.latent, z, groups, {4.0f, 25.0f}, scratch, out});
            });
            report.print({fmt::format("grouped_experts mxfp4 {} x {}x{} rows={}", kExperts,
                                      shape.width, shape.latent, rows),
                          6.0 * rows * kExperts * shape.width * shape.latent, bytes},
                         sample);
        }
    }
}

}  // namespace
}  // namespace k3pod::bench

int main() {
    k3pod::bench::Report report;
    k3pod::bench::bench_station_products(report);
    k3pod::bench::bench_linear(report);
    k3pod::bench::bench_kda(report);
    k3pod::bench::bench_mla(report);
    k3pod::bench::bench_experts(report);
}
