#pragma once
// Reads the arrays that NumPy writes, as far as the golden files need them: format 1.0,
// little-endian float32, C order.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod::testing {

struct NpyArray {
    std::vector<int64_t> shape;
    std::vector<float> values;

    // Row `i` of a two-dimensional array.
    std::span<const float> row(int64_t i) const {
        return std::span(values).subspan(static_cast<size_t>(i * shape[1]),
                                         static_cast<size_t>(shape[1]));
    }
};

// kInvalidArgument names the file and what in it is not supported.
Result<NpyArray> read_npy(const std::filesystem::path& file);

}  // namespace k3pod::testing
