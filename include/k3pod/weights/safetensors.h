#pragma once
// The header of one safetensors file: eight bytes of length (little-endian), that many bytes of
// JSON, then the tensors' bytes.
//
//   {"name": {"dtype": "F8_E4M3", "shape": [384, 256], "data_offsets": [begin, end]}, ...}

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

// Every dtype of the format; text tensors have one of the first five.
enum class DType : uint8_t {
    kF32,
    kBf16,
    kF16,
    kF8E4M3,
    kU8,
    kBool,
    kI8,
    kI16,
    kU16,
    kI32,
    kU32,
    kI64,
    kU64,
    kF8E5M2,
    kF8E8M0,
    kF64,
    kC64,
    kF4,
    kF6E2M3,
    kF6E3M2,
};
// The format's own spelling, "F8_E4M3".
const char* dtype_name(DType dtype);
int64_t dtype_bits(DType dtype);

struct TensorInfo {
    std::string_view name;  // Borrowed from the Checkpoint or SafetensorsHeader.
    DType dtype = DType::kF32;
    std::span<const int64_t> shape;  // Borrowed likewise; empty for a scalar.
    int32_t file = 0;                // Index for Checkpoint::file_path.
    int64_t offset_bytes = 0;        // From the start of the file.
    int64_t size_bytes = 0;
};

struct SafetensorsHeader {
    std::vector<TensorInfo> tensors;  // In the order of their bytes; `file` is 0.
    int64_t unnamed_bytes = 0;        // Of the file that belong to no tensor.
    std::unique_ptr<std::pmr::monotonic_buffer_resource> memory;  // Of names and shapes.
};

inline constexpr int64_t kSafetensorsLengthBytes = 8;
// What the reference reader accepts.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// `json` is everything between the length and the first tensor, `file_bytes` the size of the whole
// file. kDataLoss names the tensor, what was found and what was expected: not JSON, unknown or
// repeated fields, sizes that disagree with shape and dtype, tensors that overlap or leave the
// file. Bytes that belong to no tensor are accepted. Names that repeat are left to the caller.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t file_bytes);

}  // namespace k3pod
