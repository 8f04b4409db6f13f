#include "bench/ops/ceilings.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ops/ceilings.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

inline constexpr int64_t kChains = 12;  // latency times issue width, within sixteen registers

int64_t multiply_add_rounds(int64_t rounds, float* sink) {
    const D d;
    hn::Vec<D> sums[kChains];
    for (auto& s : sums) s = hn::Set(d, *sink);
    const auto a = hn::Set(d, 0.999f);
    const auto b = hn::Set(d, 0.001f);
    for (int64_t i = 0; i < rounds; ++i) {
        for (auto& s : sums) s = hn::MulAdd(s, a, b);
    }
    auto total = sums[0];
    for (auto& s : sums) total = hn::Add(total, s);
    *sink = hn::GetLane(hn::SumOfLanes(d, total));
    return rounds * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
}

void read_bytes(std::span<const std::byte> bytes, float* sink) {
    const hn::ScalableTag<uint32_t> d;
    const auto* words = reinterpret_cast<const uint32_t*>(bytes.data());
    const size_t n = bytes.size() / sizeof(uint32_t);
    const size_t step = hn::Lanes(d);
    hn::Vec<decltype(d)> sums[4];
    for (auto& s : sums) s = hn::Zero(d);
    for (size_t i = 0; i + 4 * step <= n; i += 4 * step) {
        for (size_t j = 0; j < 4; ++j) {
            sums[j] = hn::Xor(sums[j], hn::LoadU(d, words + i + j * step));
        }
    }
    const auto total = hn::Xor(hn::Xor(sums[0], sums[1]), hn::Xor(sums[2], sums[3]));
    *sink += static_cast<float>(hn::GetLane(total));
}

const char* target_name() {
    return hwy::TargetName(HWY_TARGET);
}

}  // namespace k3pod::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3pod::bench {

HWY_EXPORT(multiply_add_rounds);
HWY_EXPORT(read_bytes);
HWY_EXPORT(target_name);

int64_t multiply_add(int64_t rounds, float* sink) {
    return HWY_DYNAMIC_DISPATCH(multiply_add_rounds)(rounds, sink);
}

void read_all(std::span<const std::byte> bytes, float* sink) {
    HWY_DYNAMIC_DISPATCH(read_bytes)(bytes, sink);
}

const char* instruction_set() {
    return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace k3pod::bench
#endif
