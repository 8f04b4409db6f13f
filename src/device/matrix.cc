#include "k3pod/device/matrix.h"

#include <sys/mman.h>

#include <cstdlib>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector
constexpr size_t kHugePageBytes = 2 << 20;

constexpr int64_t round_up(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr int64_t num_tiles(int32_t extent) {
    return (int64_t{extent} + kFp8TileSize - 1) / kFp8TileSize;
}

void check_shape(WeightFormat format, int32_t rows, int32_t cols) {
    K3POD_CHECK(rows >= 0 && cols >= 0, "a matrix needs rows >= 0 and cols >= 0");
    const bool is_fp4 = format == WeightFormat::kNvfp4 || format == WeightFormat::kMxfp4;
    K3POD_CHECK(!is_fp4 || cols % 32 == 0, "cols of an FP4 matrix must be a multiple of 32");
}

}  // namespace

const char* weight_format_name(WeightFormat format) {
    switch (format) {
        case WeightFormat::kF32:
            return "f32";
        case WeightFormat::kBf16:
            return "bf16";
        case WeightFormat::kFp8Tile:
            return "fp8_tile";
        case WeightFormat::kNvfp4:
            return "nvfp4";
        case WeightFormat::kMxfp4:
            return "mxfp4";
    }
    return "unknown";
}

int64_t matrix_data_bytes(WeightFormat format, int32_t rows, int32_t cols) {
    check_shape(format, rows, cols);
    const int64_t elements = int64_t{rows} * cols;
    switch (format) {
        case WeightFormat::kF32:
            return elements * 4;
        case WeightFormat::kBf16:
            return elements * 2;
        case WeightFormat::kFp8Tile:
            return elements;
        case WeightFormat::kNvfp4:
        case WeightFormat::kMxfp4:
            return elements / 2;
    }
    return 0;
}

int64_t matrix_scale_bytes(WeightFormat format, int32_t rows, int32_t cols) {
    check_shape(format, rows, cols);
    switch (format) {
        case WeightFormat::kF32:
        case WeightFormat::kBf16:
            return 0;
        case WeightFormat::kFp8Tile:
            return num_tiles(rows) * num_tiles(cols) * 4;
        case WeightFormat::kNvfp4:
            return int64_t{rows} * cols / 16;
        case WeightFormat::kMxfp4:
            return int64_t{rows} * cols / 32;
    }
    return 0;
}

HostBuffer::HostBuffer(int64_t bytes) : size_(bytes) {
    K3POD_CHECK(bytes >= 0, "the size of a buffer cannot be negative");
    if (bytes == 0) return;
    void* memory = std::aligned_alloc(kAlignment, static_cast<size_t>(round_up(bytes)));
    K3POD_CHECK(memory != nullptr, "out of host memory");
    data_.reset(static_cast<std::byte*>(memory));
}

HostBuffer HostBuffer::on_huge_pages(int64_t bytes) {
    HostBuffer buffer;
    buffer.size_ = bytes;
    void* memory = nullptr;
    const auto num_bytes = static_cast<size_t>(bytes);
    const bool has_memory = posix_memalign(&memory, kHugePageBytes, num_bytes) == 0;
    K3POD_CHECK(has_memory, "out of host memory");
    (void)madvise(memory, num_bytes, MADV_HUGEPAGE);  // a wish: refused does no harm
    buffer.data_.reset(static_cast<std::byte*>(memory));
    return buffer;
}

void HostBuffer::Free::operator()(std::byte* p) const {
    std::free(p);
}

Matrix::Matrix(WeightFormat format, int32_t rows, int32_t cols) {
    const int64_t data_bytes = matrix_data_bytes(format, rows, cols);
    const int64_t scale_bytes = matrix_scale_bytes(format, rows, cols);
    const int64_t scales_at = round_up(data_bytes);
    buffer_ = HostBuffer(scale_bytes == 0 ? data_bytes : scales_at + scale_bytes);
    view_ = {.format = format, .rows = rows, .cols = cols, .data = buffer_.data()};
    if (scale_bytes != 0) view_.scales = buffer_.data() + scales_at;
}

std::span<std::byte> Matrix::mutable_data() {
    const int64_t bytes = matrix_data_bytes(view_.format, view_.rows, view_.cols);
    return {buffer_.data(), static_cast<size_t>(bytes)};
}

std::span<std::byte> Matrix::mutable_scales() {
    const int64_t bytes = matrix_scale_bytes(view_.format, view_.rows, view_.cols);
    if (bytes == 0) return {};
    return {buffer_.data() + (view_.scales - view_.data), static_cast<size_t>(bytes)};
}

}  // namespace k3pod
