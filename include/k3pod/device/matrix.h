#pragma once
// A weight matrix as it lies in memory, in one of the formats of the checkpoint. Kernels and their
// CPU twins take it by view; whoever loaded it owns the bytes.
//
//   y[T, rows] = x[T, cols] * W^T,  W is [rows, cols] row-major ("out, in").

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "k3pod/base/bf16.h"

namespace k3pod {

enum class WeightFormat : uint8_t {
    kF32,      // data: float [rows, cols]
    kBf16,     // data: Bf16 [rows, cols]
    kFp8Tile,  // data: E4M3 [rows, cols]; scales: float [ceil(rows/128), ceil(cols/128)],
               // multiplier
    kNvfp4,    // data: 2 x E2M1 a byte [rows, cols/2], low nibble = even column;
               // scales: E4M3 [rows, cols/16]; w = e2m1 * scale * global_scale
    kMxfp4,    // data: as kNvfp4; scales: E8M0 [rows, cols/32]; w = e2m1 * 2^(scale-127)
};

const char* weight_format_name(WeightFormat format);

inline constexpr int32_t kFp8TileSize = 128;

// Borrowed view. rows/cols are logical (elements). cols is a multiple of 32 for the FP4 formats.
struct MatrixView {
    WeightFormat format = WeightFormat::kF32;
    int32_t rows = 0;
    int32_t cols = 0;
    const std::byte* data = nullptr;
    const std::byte* scales = nullptr;  // nullptr for kF32, kBf16.
    float global_scale = 1.0f;          // kNvfp4 only.
};

// Bytes of data and of scales for a matrix of this format and shape: the one place that says so.
int64_t matrix_data_bytes(WeightFormat format, int32_t rows, int32_t cols);
int64_t matrix_scale_bytes(WeightFormat format, int32_t rows, int32_t cols);

// 64-byte aligned host memory, movable, freed on destruction. Contents start undefined.
class HostBuffer {
  public:
    HostBuffer() = default;
    explicit HostBuffer(int64_t bytes);  // Aborts when memory is exhausted. 0 is allowed.
    // The same on 2 MiB pages where the kernel gives them: for the few large buffers that every
    // step walks through, where each 4 KiB page is an address to look up. Not for many: each takes
    // up to three of the process's mappings.
    static HostBuffer on_huge_pages(int64_t bytes);
    std::byte* data() { return data_.get(); }
    const std::byte* data() const { return data_.get(); }
    int64_t size_bytes() const { return size_; }

  private:
    struct Free {
        void operator()(std::byte* p) const;
    };
    std::unique_ptr<std::byte[], Free> data_;
    int64_t size_ = 0;
};

// An owned matrix: a view onto its own buffer (data first, scales behind, both 64-byte aligned).
class Matrix {
  public:
    Matrix() = default;
    Matrix(WeightFormat format, int32_t rows, int32_t cols);
    const MatrixView& view() const { return view_; }
    std::span<std::byte> mutable_data();
    std::span<std::byte> mutable_scales();
    void set_global_scale(float s) { view_.global_scale = s; }
    bool is_empty() const { return view_.rows == 0; }
    int64_t size_bytes() const { return buffer_.size_bytes(); }

  private:
    HostBuffer buffer_;
    MatrixView view_;
};

}  // namespace k3pod
