#pragma once
// The routed experts of one layer on one GPU: w1, w3, SiTU, w2, weight, sum. CPU twin:
// ops::grouped_experts (ops/mlp.h).
//
// What changes from frame to frame (rows, entries, how many of both, the layer) is read from device
// or pinned memory when the kernel runs, so one launch or one graph serves every frame up to
// max_rows and max_entries.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"
#include "k3pod/wire/frame.h"

namespace k3pod::kernels {

// A matrix of a shard: as MatrixView, shape known from the shard. Pointers aligned to 16 bytes.
struct ExpertMatrix {
    const std::byte* data = nullptr;
    const std::byte* scales = nullptr;
    float global_scale = 1.0f;  // kNvfp4 only
};

// One shard in device memory (or pinned memory that the GPU reads).
struct ExpertShard {
    ExpertMatrix w1, w3;                         // gate, up: [width, L]
    ExpertMatrix w2;                             // [L, width]
    int32_t width = 0;                           // a multiple of 32
    WeightFormat format = WeightFormat::kMxfp4;  // kNvfp4 or kMxfp4, of all three
};

// All shards of a holder, by layer and expert.
struct ExpertTable {
    const ExpertShard* shards = nullptr;  // device
    // Device, [layers * E + 1]: the shards of expert e of the l-th MoE layer are
    // [first_shard[l * E + e], first_shard[l * E + e + 1]). None: another holder's.
    const int32_t* first_shard = nullptr;
    int32_t num_experts = 0;            // E
    int32_t latent = 0;                 // L, a multiple of 32
    int32_t max_width = 0;              // of a shard
    int32_t max_shards_per_expert = 1;  // of one layer
};

// out[row] = sum over the row's entries, in order, and over their expert's shards, in order, of
// weight * w2 SiTU(w1 z, w3 z), fp32. Rows without entries become zero; entries of experts without
// shards here add nothing. A row's bits do not depend on other rows.
struct GroupedExpertsArgs {
    ExpertTable table;
    int32_t max_rows = 0;     // R at most
    int32_t max_entries = 0;  // at most
    float beta = 0;           // SiTU's two
    float linear_beta = 0;
    const int32_t* layer = nullptr;            // l, an index among MoE layers; null: 0
    const int32_t* num_rows = nullptr;         // R; more than max_rows counts as max_rows
    const int32_t* num_entries = nullptr;      // likewise
    const Bf16* latents = nullptr;             // [R, L], aligned to 16
    const wire::WireEntry* entries = nullptr;  // sorted by (expert, row), none twice
    // grouped_experts_workspace_bytes(), aligned to 256, device. One launch at a time.
    std::byte* workspace = nullptr;
    float* out = nullptr;  // [R, L], overwritten
};
Status grouped_experts(const GroupedExpertsArgs& args, CudaStream stream);

int64_t grouped_experts_workspace_bytes(const ExpertTable& table, int32_t max_rows,
                                        int32_t max_entries);

// The router's picks of a step as entries, sorted as grouped_experts wants them.
struct ExpertEntriesArgs {
    int32_t rows = 0;                    // of the bucket, any number
    int32_t top_k = 0;                   // K
    const int32_t* num_rows = nullptr;   // rows in use; null: all
    const uint16_t* experts = nullptr;   // [rows, K]
    const float* weights = nullptr;      // [rows, K]
    wire::WireEntry* entries = nullptr;  // [rows * K]
    int32_t* num_entries = nullptr;
};
Status expert_entries(const ExpertEntriesArgs& args, CudaStream stream);

}  // namespace k3pod::kernels
