#pragma once
// What benchmarks of weight streaming need: memory full of plausible bytes, the bare read of a
// piece of it, and the time of one launch among many that never meet the same bytes in a cache.

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/support/or_exit.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::bench {

// Fills with 32-bit words (random & keep) | set.
struct WordPattern {
    uint32_t keep = 0xffffffffu;
    uint32_t set = 0;
};
inline constexpr WordPattern kRandomBytes{};
inline constexpr WordPattern kBf16Weights{0x807f807fu, 0x3c003c00u};  // about 2^-7
inline constexpr WordPattern kFp8Weights{0xbfbfbfbfu, 0};             // no NaN
inline constexpr WordPattern kFp32Scales{0x007fffffu, 0x3c000000u};   // about 2^-7
inline constexpr WordPattern kE4m3Scales{0x0f0f0f0fu, 0x30303030u};   // about 1
inline constexpr WordPattern kE8m0Scales{0x03030303u, 0x78787878u};   // about 2^-5
Status fill_words(std::byte* data, int64_t bytes, const WordPattern& pattern, CudaStream stream);

// One launch that reads `bytes` (a multiple of 16) once.
Status read_once(const std::byte* data, int64_t bytes, CudaStream stream);

// Microseconds of one of the `count` launches that launch(i, stream) makes for i = 0, 1, ..., in
// one graph: the median of several replays after one that warms up.
Result<double> time_of_launch(int32_t count,
                              const std::function<Status(int32_t, CudaStream)>& launch);

// Up to where the next piece of a buffer may begin.
inline int64_t aligned(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// A copy in device memory.
template <class T>
DeviceBuffer on_gpu(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    DeviceBuffer buffer = value_or_exit(DeviceBuffer::create(bytes));
    ok_or_exit(copy_to_device(buffer.data(), values.data(), bytes));
    return buffer;
}

}  // namespace k3pod::bench
