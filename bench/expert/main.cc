// The expert kernel at K3's widths: 16 experts a frame, whole and in eighths, NVFP4 and MXFP4, one
// to eight rows an expert. Frames rotate over gigabytes of experts, so no cache helps. The ceilings
// of the same run: the read rate, and a bare read of one frame's bytes. One JSON line a case.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "bench/support/gpu_memory.h"
#include "bench/support/gpu_read_rate.h"
#include "bench/support/or_exit.h"
#include "bench/support/report.h"
#include "k3pod/kernels/experts.h"

namespace k3pod::bench {
namespace {

using enum WeightFormat;

constexpr int64_t kRotatedBytes = int64_t{8} << 30;
constexpr int32_t kLatent = 3584;
constexpr int32_t kExperts = 16;
constexpr int32_t kMaxRows = 8;

// As many layers of 16 shards as fit, all bytes in one buffer, the scales of a shard behind it.
class Layers {
  public:
    Layers(WeightFormat format, int32_t width) : format_(format), width_(width) {
        const int64_t up = matrix_data_bytes(format, width, kLatent);
        const int64_t up_scales = matrix_scale_bytes(format, width, kLatent);
        shard_bytes_ = 3 * (aligned(up) + aligned(up_scales));
        memory_ = value_or_exit(DeviceBuffer::create(count() * int64_t{kExperts} * shard_bytes_));
        std::vector<kernels::ExpertShard> shards;
        std::vector<int32_t> first;
        for (int64_t i = 0; i < int64_t{count()} * kExperts; ++i) {
            first.push_back(static_cast<int32_t>(i));
            shards.push_back(make_shard(memory_.data() + i * shard_bytes_, up, up_scales));
        }
        first.push_back(static_cast<int32_t>(shards.size()));
        shards_ = on_gpu(shards);
        first_ = on_gpu(first);
    }

    int32_t count() const {
        return static_cast<int32_t>(kRotatedBytes / (kExperts * shard_bytes_));
    }
    int64_t frame_bytes() const { return kExperts * shard_bytes_; }
    const std::byte* layer(int32_t i) const { return memory_.data() + i * frame_bytes(); }
    kernels::ExpertTable table() const {
        return {.shards = shards_.as<kernels::ExpertShard>(),
                .first_shard = first_.as<int32_t>(),
                .num_experts = kExperts,
                .latent = kLatent,
                .max_width = width_,
                .max_shards_per_expert = 1};
    }

  private:
    kernels::ExpertShard make_shard(std::byte* at, int64_t data_bytes, int64_t scale_bytes) {
        kernels::ExpertShard shard;
        shard.width = width_;
        shard.format = format_;
        const WordPattern scales = format_ == kMxfp4 ? kE8m0Scales : kE4m3Scales;
        for (kernels::ExpertMatrix* m : {&shard.w1, &shard.w3, &shard.w2}) {
            ok_or_exit(fill_words(at, data_bytes, kRandomBytes, nullptr));
            m->data = at;
            at += aligned(data_bytes);
            ok_or_exit(fill_words(at, scale_bytes, scales, nullptr));
            m->scales = at;
            at += aligned(scale_bytes);
            m->global_scale = 1.0f / 64;
        }
        return shard;
    }

    WeightFormat format_;
    int32_t width_;
    int64_t shard_bytes_ = 0;
    DeviceBuffer memory_, shards_, first_;
};

// `rows` rows that all go through the same 16 experts, in every layer.
struct Frame {
    explicit Frame(int32_t rows, int32_t num_layers) {
        std::vector<wire::WireEntry> picks;
        for (uint16_t expert = 0; expert < kExperts; ++expert) {
            for (uint16_t row = 0; row < rows; ++row) picks.push_back({row, expert, 1.0f / 16});
        }
        std::vector<int32_t> numbers = {rows, static_cast<int32_t>(picks.size())};
        for (int32_t layer = 0; layer < num_layers; ++layer) numbers.push_back(layer);
        entries = on_gpu(picks);
        counts = on_gpu(numbers);
        latents = value_or_exit(DeviceBuffer::create(kMaxRows * kLatent * 2));
        ok_or_exit(
            fill_words(latents.data(), latents.size_bytes(), {0x807f807fu, 0x3f003f00u}, nullptr));
        out = value_or_exit(DeviceBuffer::create(kMaxRows * kLatent * 4));
    }
    DeviceBuffer entries, counts, latents, out;
};

void run_case(const Layers& layers, const nlohmann::ordered_json& about, int32_t rows,
              double read_rate) {
    const Frame frame(rows, layers.count());
    const int64_t workspace_bytes =
        kernels::grouped_experts_workspace_bytes(layers.table(), kMaxRows, kMaxRows * kExperts);
    const DeviceBuffer workspace = value_or_exit(DeviceBuffer::create(workspace_bytes));
    ok_or_exit(fill_device(workspace.data(), 0, workspace_bytes));
    const double read_us =
        value_or_exit(time_of_launch(layers.count(), [&](int32_t i, CudaStream s) {
            return read_once(layers.layer(i), layers.frame_bytes(), s);
        }));
    const double us = value_or_exit(time_of_launch(layers.count(), [&](int32_t i, CudaStream s) {
        return kernels::grouped_experts({.table = layers.table(),
                                         .max_rows = kMaxRows,
                                         .max_entries = kMaxRows * kExperts,
                                         .beta = 4,
                                         .linear_beta = 25,
                                         .layer = frame.counts.as<int32_t>() + 2 + i,
                                         .num_rows = frame.counts.as<int32_t>(),
                                         .num_entries = frame.counts.as<int32_t>() + 1,
                                         .latents = frame.latents.as<Bf16>(),
                                         .entries = frame.entries.as<wire::WireEntry>(),
                                         .workspace = workspace.data(),
                                         .out = frame.out.as<float>()},
                                        s);
    }));
    const auto bytes = static_cast<double>(layers.frame_bytes());
    auto line = about;
    line["rows"] = rows;
    line["mbytes"] = bytes * 1e-6;
    line["us"] = us;
    line["gb_s"] = bytes / us * 1e-3;
    line["bare_read_us"] = read_us;
    line["share_of_bare_read"] = read_us / us;
    line["share_of_read_rate"] = bytes / us * 1e6 / read_rate;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
}

}  // namespace
}  // namespace k3pod::bench

int main(int argc, char** argv) {
    using namespace k3pod::bench;
    CLI::App app("Times the experts of a frame on a GPU, one JSON line a case.");
    std::vector<int32_t> widths = {3072, 384};
    app.add_option("--width", widths, "Widths of the shards")->check(CLI::Range(32, 3072));
    CLI11_PARSE(app, argc, argv);
    ok_or_exit(k3pod::use_cuda_device(0));
    const double read_rate = value_or_exit(gpu_read_rate());
    for (const k3pod::WeightFormat format : {kMxfp4, kNvfp4}) {
        for (const int32_t width : widths) {
            const Layers layers(format, width);
            auto about = report_header("expert");
            about["format"] = k3pod::weight_format_name(format);
            about["width"] = width;
            about["experts"] = kExperts;
            for (const int32_t rows : {1, 2, 4, 8}) run_case(layers, about, rows, read_rate);
        }
    }
    return 0;
}
