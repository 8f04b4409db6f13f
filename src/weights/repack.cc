#include "repack.h"

#include <array>
#include <cmath>
#include <cstring>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

constexpr int8_t kZero = 100;          // The scale is zero.
constexpr int8_t kNoPowerOfTwo = 101;  // Negative, NaN or between powers of two.

// Per E4M3 byte its exponent of two: 2^-9 .. 2^8.
constexpr std::array<int8_t, 256> make_exponents() {
    std::array<int8_t, 256> table{};
    for (int byte = 0; byte < 256; ++byte) {
        const int exponent = byte >> 3 & 15;
        const int mantissa = byte & 7;
        int8_t value = kNoPowerOfTwo;
        if ((byte & 0x7f) == 0) {
            value = kZero;
        } else if (byte < 0x80 && exponent > 0 && mantissa == 0) {
            value = static_cast<int8_t>(exponent - 7);
        } else if (byte < 0x80 && exponent == 0 && (mantissa & (mantissa - 1)) == 0) {
            value = static_cast<int8_t>(mantissa == 4 ? -7 : mantissa - 10);  // 1, 2: 2^-9, 2^-8
        }
        table[static_cast<size_t>(byte)] = value;
    }
    return table;
}
constexpr std::array<int8_t, 256> kExponents = make_exponents();
static_assert(kExponents[0x38] == 0 && kExponents[0x78] == 8 && kExponents[0x08] == -6);
static_assert(kExponents[0x04] == -7 && kExponents[0x02] == -8 && kExponents[0x01] == -9);

constexpr int kBlockBytes = 16;  // 32 nibbles

bool is_all_zero(const std::byte* nibbles) {
    std::byte magnitudes{0};
    for (int i = 0; i < kBlockBytes; ++i) magnitudes |= nibbles[i] & std::byte{0x77};
    return magnitudes == std::byte{0};
}

// The E8M0 byte that replaces the two scales of one block, or -1.
int e8m0_of(const std::byte* scales, const std::byte* nibbles, int global_exponent) {
    const int8_t exponent = kExponents[std::to_integer<size_t>(scales[0])];
    if (exponent != kExponents[std::to_integer<size_t>(scales[1])]) return -1;
    if (exponent == kNoPowerOfTwo) return -1;
    if (exponent == kZero) return is_all_zero(nibbles) ? 127 : -1;  // Any scale will do.
    const int biased = exponent + global_exponent + 127;
    return biased >= 1 && biased <= 254 ? biased : -1;  // 0 would be a subnormal fp32.
}

}  // namespace

std::optional<Matrix> repack_as_mxfp4(const MatrixView& nvfp4) {
    K3POD_CHECK(nvfp4.format == WeightFormat::kNvfp4, "only NVFP4 can be repacked");
    int global_exponent = 0;
    // frexp gives 0.5 for powers of two.
    if (std::frexp(nvfp4.global_scale, &global_exponent) != 0.5f) return std::nullopt;
    --global_exponent;
    Matrix out(WeightFormat::kMxfp4, nvfp4.rows, nvfp4.cols);
    const auto scales = out.mutable_scales();
    for (size_t block = 0; block < scales.size(); ++block) {
        const int scale =
            e8m0_of(nvfp4.scales + 2 * block, nvfp4.data + kBlockBytes * block, global_exponent);
        if (scale < 0) return std::nullopt;
        scales[block] = static_cast<std::byte>(scale);
    }
    std::memcpy(out.mutable_data().data(), nvfp4.data, out.mutable_data().size());
    return out;
}

}  // namespace k3pod
