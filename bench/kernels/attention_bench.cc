// The kernels of a station's step that are not products, each alone at K3's shapes: bytes, time,
// and the share of the read rate measured in the same run that the bytes amount to. State, cache
// and rows rotate over gigabytes, so no cache helps. One JSON line a case.

#include <fmt/core.h>

#include <functional>
#include <numeric>
#include <vector>

#include "bench/support/gpu_memory.h"
#include "bench/support/gpu_read_rate.h"
#include "bench/support/or_exit.h"
#include "bench/support/report.h"
#include "k3pod/kernels/attn_res.h"
#include "k3pod/kernels/kda.h"
#include "k3pod/kernels/mla.h"
#include "k3pod/kernels/router.h"
#include "k3pod/kernels/sample.h"

namespace k3pod::bench {
namespace {

using kernels::StepChunks;

constexpr kernels::KdaShape kKda{.heads = 96, .head_dim = 128};
constexpr kernels::MlaDims kMla{.heads = 96, .nope = 128, .rope = 64, .value = 128, .rank = 512};
constexpr int32_t kHidden = 7168, kExperts = 896, kTopK = 16, kVocab = 163840;
constexpr int32_t kPageTokens = 64;
constexpr int64_t kRotatedBytes = int64_t{6} << 30;
constexpr int32_t kMaxLaunches = 200;
constexpr int32_t kPrefillTokens = 2048;

// Memory full of small floats, and device arrays of indices that live as long as the program.
struct Memory {
    DeviceBuffer rotated = filled(kRotatedBytes, kFp32Scales);
    DeviceBuffer cache = filled(int64_t{4} << 30, kBf16Weights);
    DeviceBuffer rows = filled(int64_t{2} << 30, kFp32Scales);  // inputs, weights, outputs
    DeviceBuffer workspace = filled(int64_t{2} << 30, kRandomBytes);
    double read_rate = value_or_exit(gpu_read_rate());

    static DeviceBuffer filled(int64_t bytes, const WordPattern& pattern) {
        DeviceBuffer buffer = value_or_exit(DeviceBuffer::create(bytes));
        ok_or_exit(fill_words(buffer.data(), bytes, pattern, nullptr));
        return buffer;
    }
    // Floats from `mfloats` million on.
    float* at(int64_t mfloats) const { return rows.as<float>() + mfloats * 1000 * 1024; }
};

struct Case {
    std::string name;
    int32_t rows = 1;
    double bytes = 0;  // of one launch; 0: not bound by memory
    int32_t launches = kMaxLaunches;
    std::function<Status(int32_t, CudaStream)> launch;
};

void run(const Case& c, const Memory& memory) {
    const double us = value_or_exit(time_of_launch(c.launches, c.launch));
    auto line = report_header("kernels");
    line["case"] = c.name;
    line["rows"] = c.rows;
    line["us"] = us;
    if (c.bytes > 0) {
        line["mbytes"] = c.bytes * 1e-6;
        line["gb_s"] = c.bytes / us * 1e-3;
        line["share_of_read_rate"] = c.bytes / us * 1e6 / memory.read_rate;
    }
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
}

// Chunks for every launch: launch i has slots and pages of its own.
class Rotation {
  public:
    // `count` launches of `chunks` chunks with `rows` rows each, that end at `context` tokens.
    Rotation(int32_t count, int32_t chunks, int32_t rows, int32_t context)
        : chunks_(chunks), rows_(rows), pages_((context + kPageTokens - 1) / kPageTokens) {
        std::vector<int32_t> first(static_cast<size_t>(chunks));
        for (int32_t c = 0; c < chunks; ++c) first[static_cast<size_t>(c)] = c * rows;
        first_row_ = on_gpu(first);
        num_rows_ = on_gpu(std::vector<int32_t>(first.size(), rows));
        positions_ = on_gpu(std::vector<int32_t>(first.size(), context - rows));
        std::vector<int32_t> order(static_cast<size_t>(count) * first.size());
        std::iota(order.begin(), order.end(), 0);
        slots_ = on_gpu(order);
        order.resize(order.size() * static_cast<size_t>(pages_));
        std::iota(order.begin(), order.end(), 0);
        table_ = on_gpu(order);
    }
    StepChunks of(int32_t launch) const {
        return {.num_chunks = chunks_,
                .max_rows = rows_,
                .first_row = first_row_.as<int32_t>(),
                .num_rows = num_rows_.as<int32_t>(),
                .positions = positions_.as<int32_t>(),
                .slots = slots_.as<int32_t>() + launch * chunks_,
                .page_table = table_.as<int32_t>() + int64_t{launch} * chunks_ * pages_,
                .page_stride = pages_};
    }

  private:
    int32_t chunks_, rows_, pages_;
    DeviceBuffer first_row_, num_rows_, positions_, slots_, table_;
};

constexpr int64_t kStateFloats = int64_t{96} * 128 * 128;
constexpr int64_t kWindowFloats = 9 * int64_t{12288};

kernels::KdaArgs kda_args(const Memory& memory, const StepChunks& chunks, int32_t rows) {
    return {.shape = kKda,
            .chunks = chunks,
            .weights = {memory.at(0), memory.at(1), memory.at(2), memory.at(3), memory.at(3),
                        memory.at(3), -5.0f, 1e-6f, 1e-5f},
            .in = {.q = memory.at(10),
                   .k = memory.at(40),
                   .v = memory.at(70),
                   .f = memory.at(100),
                   .g = memory.at(130),
                   .b = memory.at(160)},
            .state = {.recurrent = memory.rotated.as<float>(),
                      .recurrent_stride = kStateFloats + kWindowFloats,
                      .conv_window = memory.rotated.as<float>() + kStateFloats,
                      .conv_stride = kStateFloats + kWindowFloats},
            .y = memory.at(170),
            .workspace = memory.workspace.data(),
            .num_rows = rows};
}

void run_kda(const Memory& memory) {
    constexpr int64_t kSlotBytes = (kStateFloats + kWindowFloats) * 4;
    for (const int32_t batch : {1, 4, 16}) {
        const auto launches = static_cast<int32_t>(
            std::min<int64_t>(kMaxLaunches, kRotatedBytes / kSlotBytes / batch));
        const Rotation rotation(launches, batch, 1, 64);
        const double inputs = 6.0 * 12288 * 4;
        run({.name = "KDA core, 96 heads",
             .rows = batch,
             .bytes = batch * (2.0 * kSlotBytes + inputs),
             .launches = launches,
             .launch =
                 [&](int32_t i, CudaStream s) {
                     return kernels::kda(kda_args(memory, rotation.of(i), batch), s);
                 }},
            memory);
    }
    const Rotation rotation(8, 1, kPrefillTokens, kPrefillTokens);
    run({.name = "KDA prefill, 96 heads",
         .rows = kPrefillTokens,
         .launches = 8,
         .launch =
             [&](int32_t i, CudaStream s) {
                 return kernels::kda(kda_args(memory, rotation.of(i), kPrefillTokens), s);
             }},
        memory);
}

Status attend(const Memory& memory, const StepChunks& chunks, int32_t splits, CudaStream stream) {
    return kernels::mla_attend(
        {.dims = kMla,
         .chunks = chunks,
         .rows = chunks.num_chunks * chunks.max_rows,
         .latent_q = memory.cache.as<Bf16>(),
         .cache = {memory.cache.as<Bf16>(), int64_t{kPageTokens} * kMla.cache_width(), kPageTokens},
         .num_splits = splits,
         .workspace = memory.workspace.data(),
         .latent_out = memory.at(200)},
        stream);
}

void run_mla_decode(const Memory& memory, int32_t batch, int32_t context) {
    const int64_t bytes = int64_t{batch} * context * kMla.cache_width() * 2;
    const auto launches =
        static_cast<int32_t>(std::min<int64_t>(kMaxLaunches, memory.cache.size_bytes() / bytes));
    const Rotation rotation(launches, batch, 1, context);
    const int32_t splits = kernels::mla_num_splits(kMla, rotation.of(0), context);
    run({.name = fmt::format("MLA attention, 96 heads, {}k", context / 1024),
         .rows = batch,
         .bytes = static_cast<double>(bytes),
         .launches = launches,
         .launch = [&](int32_t i,
                       CudaStream s) { return attend(memory, rotation.of(i), splits, s); }},
        memory);
}

void run_mla(const Memory& memory) {
    for (const int32_t context : {4096, 32768, 131072}) run_mla_decode(memory, 1, context);
    for (const int32_t context : {4096, 32768}) run_mla_decode(memory, 4, context);
    run_mla_decode(memory, 16, 4096);
    const Rotation prefill(2, 1, kPrefillTokens, 32768);
    run({.name = "MLA prefill, 96 heads, 32k",
         .rows = kPrefillTokens,
         .launches = 2,
         .launch = [&](int32_t i, CudaStream s) { return attend(memory, prefill.of(i), 1, s); }},
        memory);

    constexpr int64_t kBytes = int64_t{96} * 256 * 512;
    for (const int32_t rows : {1, 16}) {
        const auto kv_b = [&](int32_t i) {
            return MatrixView{WeightFormat::kFp8Tile, 96 * 256, 512,
                              memory.cache.data() + i * kBytes,
                              reinterpret_cast<const std::byte*>(memory.at(3))};
        };
        run({.name = "MLA absorb query",
             .rows = rows,
             .bytes = kBytes / 2.0,
             .launch =
                 [&](int32_t i, CudaStream s) {
                     return kernels::mla_absorb_query({kMla, rows, kv_b(i), memory.at(10), 1.0f,
                                                       reinterpret_cast<Bf16*>(memory.at(40))},
                                                      s);
                 }},
            memory);
        run({.name = "MLA expand values and gate",
             .rows = rows,
             .bytes = kBytes / 2.0,
             .launch =
                 [&](int32_t i, CudaStream s) {
                     return kernels::mla_expand_values({.dims = kMla,
                                                        .rows = rows,
                                                        .kv_b = kv_b(i),
                                                        .latent_out = memory.at(10),
                                                        .g = memory.at(40),
                                                        .o = memory.at(70)},
                                                       s);
                 }},
            memory);
    }
}

void run_small(const Memory& memory) {
    for (const int32_t rows : {1, 16}) {
        constexpr int32_t kBlocks = 8;
        const int64_t size = int64_t{rows} * kHidden;
        run({.name = "AttnRes mix of 8 blocks and norm",
             .rows = rows,
             .bytes = (kBlocks + 3.0) * static_cast<double>(size) * 4,
             .launch =
                 [&, size](int32_t i, CudaStream s) {
                     float* base = memory.rotated.as<float>() + i * (kBlocks + 3) * size;
                     std::vector<const float*> blocks;
                     for (int32_t b = 0; b < kBlocks; ++b) blocks.push_back(base + b * size);
                     return kernels::attn_res_mix({.rows = rows,
                                                   .hidden = kHidden,
                                                   .blocks = blocks,
                                                   .prefix = base + kBlocks * size,
                                                   .addend = base + (kBlocks + 1) * size,
                                                   .mixer = memory.at(0),
                                                   .eps = 1e-5f,
                                                   .norm_weight = memory.at(1),
                                                   .norm_eps = 1e-5f,
                                                   .out = base + (kBlocks + 2) * size},
                                                  s);
                 }},
            memory);
        run({.name = "router, top 16 of 896",
             .rows = rows,
             .launch =
                 [&](int32_t i, CudaStream s) {
                     return kernels::route(
                         {rows, kExperts, kTopK,
                          memory.rotated.as<float>() + int64_t{i} * rows * kExperts, memory.at(0),
                          1.0f, reinterpret_cast<uint16_t*>(memory.at(10)), memory.at(11)},
                         s);
                 }},
            memory);
    }
}

void run_sample(const Memory& memory) {
    for (const int32_t rows : {1, 16}) {
        for (const float temperature : {0.0f, 1.0f}) {
            std::vector<kernels::SampleRow> params(static_cast<size_t>(rows));
            for (auto& p : params) {
                p.temperature = temperature;
                p.top_p = 0.95f;
            }
            const DeviceBuffer params_gpu = on_gpu(params);
            run({.name = temperature > 0 ? "sampling, top_p 0.95" : "sampling, greedy",
                 .rows = rows,
                 .bytes = 4.0 * rows * kVocab,
                 .launches = 20,
                 .launch =
                     [&](int32_t i, CudaStream s) {
                         return kernels::sample(
                             {.rows = rows,
                              .vocab = kVocab,
                              .logits = memory.rotated.as<float>() + int64_t{i} * rows * kVocab,
                              .params = params_gpu.as<kernels::SampleRow>(),
                              .workspace = memory.workspace.data(),
                              .ids = reinterpret_cast<int32_t*>(memory.at(10))},
                             s);
                     }},
                memory);
        }
    }
}

}  // namespace
}  // namespace k3pod::bench

int main() {
    using namespace k3pod::bench;
    ok_or_exit(k3pod::use_cuda_device(0));
    const Memory memory;
    run_small(memory);
    run_kda(memory);
    run_mla(memory);
    run_sample(memory);
    return 0;
}
