#pragma once

#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"

namespace k3pod::ops {

// One holder's partial expert output, as it came off the wire or out of an ExpertRunner.
struct PartialRows {
    // Exactly one of the two is filled: [rows.size() or R, L].
    std::span<const float> f32 = {};
    std::span<const Bf16> bf16 = {};
    // Row of out that each row adds to, ascending; empty: all R rows.
    std::span<const uint16_t> rows = {};
};

// out[R, L] = sum of the parts, fp32, in the order given: pass them in holder order so that the
// bits do not depend on who answered first. Rows that no part names become zero.
struct CombineArgs {
    int32_t rows = 0;    // R
    int32_t latent = 0;  // L
    std::span<const PartialRows> parts;
    std::span<float> out;  // [R, L], overwritten
};
void combine(const CombineArgs& args);

}  // namespace k3pod::ops
