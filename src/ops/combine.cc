#include "k3pod/ops/combine.h"

#include <algorithm>

#include "k3pod/base/check.h"

namespace k3pod::ops {
namespace {

float widen(float v) {
    return v;
}
float widen(Bf16 v) {
    return to_f32(v);
}

template <class T>
void add_part(const CombineArgs& args, std::span<const T> part, std::span<const uint16_t> rows) {
    const int64_t num_rows = rows.empty() ? args.rows : std::ssize(rows);
    K3POD_CHECK(std::ssize(part) == num_rows * args.latent, "a part must be [its rows, L]");
    for (int64_t i = 0; i < num_rows; ++i) {
        const int64_t row = rows.empty() ? i : rows[i];
        K3POD_CHECK(row < args.rows, "a part names a row past the end");
        const T* from = part.data() + i * args.latent;
        float* to = args.out.data() + row * args.latent;
        for (int64_t c = 0; c < args.latent; ++c) to[c] += widen(from[c]);
    }
}

}  // namespace

void combine(const CombineArgs& args) {
    K3POD_CHECK(std::ssize(args.out) == int64_t{args.rows} * args.latent, "out must be [R, L]");
    std::fill(args.out.begin(), args.out.end(), 0.0f);
    for (const PartialRows& part : args.parts) {
        K3POD_CHECK(part.f32.empty() || part.bf16.empty(), "a part is fp32 or bf16, not both");
        if (!part.bf16.empty()) {
            add_part(args, part.bf16, part.rows);
        } else {
            add_part(args, part.f32, part.rows);
        }
    }
}

}  // namespace k3pod::ops
