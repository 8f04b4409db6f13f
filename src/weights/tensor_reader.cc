#include "tensor_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

// Bounds the buffer of strided reads and the distance between progress calls.
constexpr int64_t kChunkBytes = 4 << 20;

// Whether any value matches; without an early exit, so that the compiler vectorises it.
template <class T>
bool has_any(std::span<const std::byte> bytes, T mask, T pattern) {
    bool found = false;
    const size_t count = bytes.size() / sizeof(T);
    for (size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        found |= (value & mask) == pattern;
    }
    return found;
}

}  // namespace

bool holds_not_finite(std::span<const std::byte> bytes, ValueKind kind) {
    switch (kind) {
        case ValueKind::kNibbles:
            return false;
        case ValueKind::kE8M0:
            return has_any<uint8_t>(bytes, 0xff, 0xff);
        case ValueKind::kE4M3:
            return has_any<uint8_t>(bytes, 0x7f, 0x7f);
        case ValueKind::kBf16:
            return has_any<uint16_t>(bytes, 0x7f80, 0x7f80);
        case ValueKind::kF32:
            return has_any<uint32_t>(bytes, 0x7f800000, 0x7f800000);
    }
    return false;
}

Status TensorReader::read(const TensorInfo& tensor, ValueKind kind, int64_t begin,
                          std::span<std::byte> out) const {
    while (!out.empty()) {
        const auto chunk = out.first(std::min(out.size(), static_cast<size_t>(kChunkBytes)));
        K3POD_TRY(checkpoint_.read(tensor, begin, chunk));
        K3POD_TRY(check_finite(tensor, kind, chunk));
        if (progress_ != nullptr) progress_->add(static_cast<int64_t>(chunk.size()));
        begin += static_cast<int64_t>(chunk.size());
        out = out.subspan(chunk.size());
    }
    return Status::ok();
}

Status TensorReader::read_columns(const TensorInfo& tensor, ValueKind kind, Columns columns,
                                  std::span<std::byte> out) const {
    const auto [row_bytes, begin, width] = columns;
    const int64_t rows = tensor.size_bytes / row_bytes;
    K3POD_CHECK(begin >= 0 && begin + width <= row_bytes &&
                    static_cast<int64_t>(out.size()) == rows * width,
                "the output holds the columns of every row");
    if (width == row_bytes) return read(tensor, kind, 0, out);
    const int64_t rows_per_chunk = std::clamp<int64_t>(kChunkBytes / row_bytes, 1, rows);
    std::vector<std::byte> chunk(static_cast<size_t>(rows_per_chunk * row_bytes));
    std::byte* to = out.data();
    for (int64_t row = 0; row < rows; row += rows_per_chunk) {
        const int64_t count = std::min(rows_per_chunk, rows - row);
        K3POD_TRY(checkpoint_.read(tensor, row * row_bytes,
                                   std::span(chunk).first(static_cast<size_t>(count * row_bytes))));
        for (int64_t i = 0; i < count; ++i, to += width) {
            std::memcpy(to, chunk.data() + i * row_bytes + begin, static_cast<size_t>(width));
        }
    }
    return check_finite(tensor, kind, out);
}

Status TensorReader::check_finite(const TensorInfo& tensor, ValueKind kind,
                                  std::span<const std::byte> bytes) const {
    if (!holds_not_finite(bytes, kind)) return Status::ok();
    return data_loss(
        fmt::format("tensor {} in {} holds a value that is NaN or infinite: the file is "
                    "damaged, copy it again",
                    tensor.name, checkpoint_.file_path(tensor.file).string()));
}

}  // namespace k3pod
