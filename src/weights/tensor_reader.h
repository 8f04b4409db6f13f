#pragma once
// Reads parts of tensors into memory and refuses values that are not finite while they are in
// cache.

#include <cstddef>
#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/load_progress.h"

namespace k3pod {

// What the bytes of a tensor mean, as far as NaN and infinity go.
enum class ValueKind : uint8_t {
    kNibbles,  // Two E2M1 a byte; every pattern is finite.
    kE8M0,     // 0xff is NaN.
    kE4M3,     // 0x7f and 0xff are NaN.
    kBf16,
    kF32,
};

// Whether any value is NaN or infinite.
bool holds_not_finite(std::span<const std::byte> bytes, ValueKind kind);

class TensorReader {
  public:
    // `progress` may be null. Borrows both.
    TensorReader(const Checkpoint& checkpoint, ProgressMeter* progress)
        : checkpoint_(checkpoint), progress_(progress) {}

    // Fills `out` from byte `begin` of the tensor on. kDataLoss names the tensor and the place of
    // the first value that is not finite.
    Status read(const TensorInfo& tensor, ValueKind kind, int64_t begin,
                std::span<std::byte> out) const;

    // Of each row of `row_bytes`, bytes [begin, begin + width) into `out`, dense. Reads whole rows:
    // a slice of a row is smaller than a disk block.
    struct Columns {
        int64_t row_bytes, begin, width;
    };
    Status read_columns(const TensorInfo& tensor, ValueKind kind, Columns columns,
                        std::span<std::byte> out) const;

  private:
    Status check_finite(const TensorInfo& tensor, ValueKind kind,
                        std::span<const std::byte> bytes) const;

    const Checkpoint& checkpoint_;
    ProgressMeter* progress_;
};

}  // namespace k3pod
