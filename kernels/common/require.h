#pragma once
// How launchers check their arguments.

#include <cstdint>
#include <string>

#include "k3pod/base/status.h"

namespace k3pod::kernels {

// Ok, or kInvalidArgument: "<kernel>: <what> is <value>; it must be <wanted>".
inline Status require(bool holds, const char* kernel, const char* what, int64_t value,
                      const char* wanted) {
    if (holds) return Status::ok();
    return invalid_argument(std::string(kernel) + ": " + what + " is " + std::to_string(value) +
                            "; it must be " + wanted);
}

inline Status require_pointer(const void* pointer, const char* kernel, const char* what) {
    if (pointer != nullptr) return Status::ok();
    return invalid_argument(std::string(kernel) + ": " + what + " is null; it must be set");
}

// Whether rows of `width` elements of 4 bytes, the first at `pointer` and `stride` elements apart,
// can be read 16 bytes at a time. True for null, which nobody reads.
inline bool are_rows_vectors(const void* pointer, int64_t stride) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 4 == 0;
}

}  // namespace k3pod::kernels
