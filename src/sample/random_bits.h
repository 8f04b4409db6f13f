#pragma once
// Counter-based random numbers: a draw's bits are a function of (seed, position) and of nothing
// that was drawn before, so neighbours, retries and cancelled requests cannot shift them.

#include <cstdint>

namespace k3pod {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection on 64 bits.
constexpr uint64_t mix_bits(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Output number `position` of SplitMix64. Its start is mixed too: seeds 1, 2, 3 ... would otherwise
// give the same stream, shifted.
constexpr uint64_t random_bits(uint64_t seed, uint64_t position) {
    constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;
    return mix_bits(mix_bits(seed ^ kGoldenGamma) + (position + 1) * kGoldenGamma);
}

}  // namespace k3pod
