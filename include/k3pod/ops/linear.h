#pragma once
// Matrix products with the weights of the checkpoint, in every WeightFormat. Activations and sums
// are fp32; a weight is widened to fp32 with its scale applied, and that value is what is
// multiplied.
//
// Summation: every output is summed over the columns in one order that depends on the matrix alone.
// A row of y therefore has the same bits whatever T is and whatever the other rows hold.
//
// Nothing here allocates. Shapes that do not fit are our own bugs and end in K3POD_CHECK. E4M3 and
// E8M0 bytes that mean NaN are refused when weights are loaded and are not looked for again.

#include <cstdint>
#include <span>

#include "k3pod/device/matrix.h"

namespace k3pod::ops {

// y[T, rows] = x[T, cols] W^T. x and y must not overlap. T = 0 does nothing.
void linear(const MatrixView& weight, int32_t tokens,
            std::span<const float> x,  // [T, cols]
            std::span<float> y);       // [T, rows]

// Rows of activations inside wider rows: row t starts at data + t * stride.
struct RowsIn {
    const float* data = nullptr;
    int64_t stride = 0;
};
struct RowsOut {
    float* data = nullptr;
    int64_t stride = 0;
};

// Rows [begin, end) of a matrix, as if they were a matrix of their own: a head's band of MLA's
// kv_b.
struct MatrixBand {
    MatrixView weight;
    int32_t begin = 0;
    int32_t end = 0;
    int32_t rows() const { return end - begin; }
};

// y[T, end-begin] = x[T, cols] B^T. The bits equal those of the same outputs of linear().
void linear_band(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y);

// y[T, cols] = x[T, end-begin] B, the transposed product; summed over the band's rows in order.
void linear_band_transposed(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y);

// out[end-begin, cols] = rows [begin, end) as the fp32 values that linear() multiplies with.
void dequantize_rows(const MatrixView& weight, int32_t begin, int32_t end, std::span<float> out);

}  // namespace k3pod::ops
