// Compiled with -mavx2. Includes nothing with inline functions of its own: the linker keeps one
// copy of those, and this one would not run everywhere.
#include "wire/checksum_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace k3pod::wire {

uint64_t xxh3_avx2(const void* data, size_t num_bytes) {
    return XXH3_64bits(data, num_bytes);
}

}  // namespace k3pod::wire
