#pragma once
// Random weights in every format, on both sides, and how results are compared.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "k3pod/device/matrix.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod::testing {

inline void fill_with_floats(std::span<std::byte> bytes, RandomValues& random, float deviation) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
        const float v = random.normal(deviation);
        std::memcpy(&bytes[i], &v, sizeof(v));
    }
}

inline void fill_with_bf16s(std::span<std::byte> bytes, RandomValues& random, float deviation) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(Bf16)) {
        const Bf16 v = to_bf16(random.normal(deviation));
        std::memcpy(&bytes[i], &v, sizeof(v));
    }
}

inline void fill_with_bytes(std::span<std::byte> bytes, RandomValues& random, int32_t low,
                            int32_t high) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.integer(low, high));
}

// Weights of about the size that a model's have.
inline Matrix random_matrix(WeightFormat format, int32_t rows, int32_t cols, RandomValues& random) {
    Matrix m(format, rows, cols);
    switch (format) {
        case WeightFormat::kF32:
            fill_with_floats(m.mutable_data(), random, 0.02f);
            break;
        case WeightFormat::kBf16:
            fill_with_bf16s(m.mutable_data(), random, 0.02f);
            break;
        case WeightFormat::kFp8Tile:
            // 0x7f and 0xff are NaN.
            fill_with_bytes(m.mutable_data(), random, 0, 0x7e);
            for (std::byte& b : m.mutable_data()) {
                if (random.integer(0, 1) == 1) b |= std::byte{0x80};
            }
            fill_with_floats(m.mutable_scales(), random, 0.001f);
            break;
        case WeightFormat::kNvfp4:
            fill_with_bytes(m.mutable_data(), random, 0, 255);
            fill_with_bytes(m.mutable_scales(), random, 0x20, 0x40);
            m.set_global_scale(random.uniform(0.01f, 0.02f));
            break;
        case WeightFormat::kMxfp4:
            fill_with_bytes(m.mutable_data(), random, 0, 255);
            fill_with_bytes(m.mutable_scales(), random, 118, 124);
            break;
    }
    return m;
}

// A copy of a matrix in device memory.
class GpuMatrix {
  public:
    explicit GpuMatrix(const MatrixView& host) : view_(host) {
        data_ = to_gpu(std::span(
            host.data, static_cast<size_t>(matrix_data_bytes(host.format, host.rows, host.cols))));
        view_.data = data_.data();
        const int64_t scale_bytes = matrix_scale_bytes(host.format, host.rows, host.cols);
        if (scale_bytes == 0) return;
        scales_ = to_gpu(std::span(host.scales, static_cast<size_t>(scale_bytes)));
        view_.scales = scales_.data();
    }
    const MatrixView& view() const { return view_; }

  private:
    DeviceBuffer data_, scales_;
    MatrixView view_;
};

inline double norm(std::span<const float> values) {
    double squares = 0;
    for (const float v : values) squares += double{v} * double{v};
    return std::sqrt(squares);
}

// |have - want|, NaN where either has one.
inline double distance(std::span<const float> have, std::span<const float> want) {
    EXPECT_EQ(have.size(), want.size());
    double squares = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        const double d = double{have[i]} - double{want[i]};
        squares += d * d;
    }
    return std::sqrt(squares);
}

// ||have - want|| / ||want||; NaN when anything is.
inline double relative_error(std::span<const float> have, std::span<const float> want) {
    return distance(have, want) / std::max(norm(want), 1e-150);
}

}  // namespace k3pod::testing
