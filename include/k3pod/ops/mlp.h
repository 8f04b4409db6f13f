#pragma once
// SiTU and the MLPs built on it: dense, shared experts, and groups of routed expert shards.

#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/device/matrix.h"

namespace k3pod::ops {

struct SituParams {
    float beta = 0;         // 4
    float linear_beta = 0;  // 25
};

// y = [beta * tanh(gate / beta) * sigmoid(gate)] * [linear_beta * tanh(up / linear_beta)],
// element-wise. The sigmoid sees the raw gate. y may be gate or up.
void situ(const SituParams& params, std::span<const float> gate, std::span<const float> up,
          std::span<float> y);

// y = down(SiTU(gate(x), up(x))).
struct MlpArgs {
    int32_t tokens = 0;
    MatrixView gate, up;  // [width, H]
    MatrixView down;      // [H, width]
    SituParams situ;
    std::span<const float> x;  // [T, H]
    std::span<float> scratch;  // [2, T, width] at least
    std::span<float> y;        // [T, H]
};
void mlp(const MlpArgs& args);

// One shard of an expert and the rows that go through it.
struct WeightedRow {
    int32_t row = 0;
    float weight = 0;
};
struct ExpertGroup {
    MatrixView w1, w3;                  // gate, up: [width, L], any width
    MatrixView w2;                      // [L, width]
    std::span<const WeightedRow> rows;  // no row twice in one group
};

// out[row] = sum over the groups, in order, of weight * w2 SiTU(w1 z, w3 z); rows in no group are
// zero. The sum runs in fp32 and the weight is applied after w2. A row's bits do not depend on
// other rows.
struct GroupedExpertsArgs {
    int32_t rows = 0;
    int32_t latent = 0;             // L
    std::span<const Bf16> latents;  // [R, L]
    std::span<const ExpertGroup> groups;
    SituParams situ;
    std::span<float> scratch;  // grouped_experts_scratch_floats(latent, widest shard) at least
    std::span<float> out;      // [R, L], overwritten
};
int64_t grouped_experts_scratch_floats(int32_t latent, int32_t max_width);
void grouped_experts(const GroupedExpertsArgs& args);

}  // namespace k3pod::ops
