#pragma once
// Rows of activations: a buffer sized once for the largest step, and the part of it that a step
// uses.

#include <cstdint>
#include <span>

#include "k3pod/device/matrix.h"

namespace k3pod {

// Consecutive rows of a step.
struct RowRange {
    int32_t begin = 0;
    int32_t count = 0;
};

// Rows `range` of all[T, width].
template <class T>
std::span<T> rows_of(std::span<T> all, RowRange range, int64_t width) {
    return all.subspan(static_cast<size_t>(range.begin * width),
                       static_cast<size_t>(range.count * width));
}

// [max_rows, width] fp32, contents undefined until written.
class RowBuffer {
  public:
    RowBuffer(int32_t max_rows, int32_t width)
        : width_(width), buffer_(int64_t{max_rows} * width * int64_t{sizeof(float)}) {}

    // The first `count` rows; count is at most max_rows.
    std::span<float> rows(int32_t count) {
        return {reinterpret_cast<float*>(buffer_.data()),
                static_cast<size_t>(int64_t{count} * width_)};
    }
    std::span<const float> rows(int32_t count) const {
        return {reinterpret_cast<const float*>(buffer_.data()),
                static_cast<size_t>(int64_t{count} * width_)};
    }
    int32_t width() const { return width_; }

  private:
    int32_t width_;
    HostBuffer buffer_;
};

}  // namespace k3pod
