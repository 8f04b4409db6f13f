// Arbitrary bytes as the header of a safetensors file. What is accepted must lie inside the file,
// without overlap, and have the size of its shape.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "k3pod/weights/safetensors.h"

namespace {

constexpr int64_t kPayloadBytes = 4096;

void require(bool condition) {
    if (!condition) std::abort();
}

void check(const k3pod::SafetensorsHeader& header, int64_t payload_begin, int64_t file_bytes) {
    int64_t end = payload_begin;
    int64_t unnamed = file_bytes - payload_begin;
    for (const k3pod::TensorInfo& tensor : header.tensors) {
        require(!tensor.name.empty() && tensor.size_bytes >= 0);
        require(tensor.offset_bytes >= end);
        end = tensor.offset_bytes + tensor.size_bytes;
        unnamed -= tensor.size_bytes;
        int64_t values = 1;
        for (const int64_t extent : tensor.shape) values *= extent;
        require(values * k3pod::dtype_bits(tensor.dtype) == 8 * tensor.size_bytes);
    }
    require(end <= file_bytes && unnamed == header.unnamed_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const int64_t payload_begin = k3pod::kSafetensorsLengthBytes + static_cast<int64_t>(size);
    const auto header = k3pod::parse_safetensors_header(json, payload_begin + kPayloadBytes);
    if (header) check(*header, payload_begin, payload_begin + kPayloadBytes);
    require(header || !header.status().message().empty());
    return 0;
}
