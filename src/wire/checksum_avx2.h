#pragma once

#include <cstddef>
#include <cstdint>

namespace k3pod::wire {

// XXH3-64 of `num_bytes` bytes, compiled for AVX2: only where the processor has it.
uint64_t xxh3_avx2(const void* data, size_t num_bytes);

}  // namespace k3pod::wire
