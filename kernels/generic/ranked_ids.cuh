#pragma once
// The vocabulary in order of falling weight (ties: the lower id first) for one block, without
// sorting: what the CPU's RankedWeights gives, by radix selection. An id is a key of 60 bits whose
// order is the wanted one; a level looks at 12 bits of it.
//
//   bits 59..48  upper bits of the weight, which is in [0, 1]: its bucket
//   bits 47..30  the rest of the weight
//   bits 29..6   0xffffff - id
//
// Level 0 counts all ids and is kept. The other levels look at the ids of one bucket, which are
// collected first. Masses are fixed-point integers, so their sums do not depend on the order.

#include "common/block.cuh"

namespace k3pod::kernels {

inline constexpr int kRankThreads = 1024;
inline constexpr int kNumBins = 4096;
inline constexpr int kBinsPerThread = kNumBins / kRankThreads;
inline constexpr int kBinBits = 12;
inline constexpr int kTopShift = 48;
inline constexpr int kBucketShift = 18;  // of a weight's bits
inline constexpr int32_t kMaxRankedIds = 1 << 24;

using Key = unsigned long long;
using Mass = unsigned long long;

struct IdGroup {
    Mass mass = 0;
    int32_t count = 0;
    __device__ void add(const IdGroup& other) {
        mass += other.mass;
        count += other.count;
    }
};

struct Bins {
    Mass mass[kNumBins];
    int32_t count[kNumBins];
};

__device__ inline int bucket_of(float weight) {
    return static_cast<int>(__float_as_uint(weight) >> kBucketShift);
}

__device__ inline Key key_of(float weight, int32_t id) {
    return static_cast<Key>(__float_as_uint(weight)) << (kTopShift - kBucketShift) |
           static_cast<Key>(kMaxRankedIds - 1 - id) << 6;
}
__device__ inline float weight_of(Key key) {
    return __uint_as_float(static_cast<uint32_t>(key >> (kTopShift - kBucketShift)));
}
__device__ inline int32_t id_of(Key key) {
    return kMaxRankedIds - 1 - static_cast<int32_t>(key >> 6 & (kMaxRankedIds - 1));
}

// In units of 2^-40.
__device__ inline Mass mass_of(float weight) {
    return static_cast<Mass>(__float2ll_rz(__fmul_rn(weight, 1099511627776.0f)));
}

// Where a prefix of the order ends: the id whose share of the wanted measure holds `point`.
struct RankPoint {
    Mass point = 0;
    bool is_mass = true;  // else a number of ids
    __device__ bool is_in(const IdGroup& before_and_bin) const {
        return is_mass ? before_and_bin.mass > point
                       : static_cast<Mass>(before_and_bin.count) > point;
    }
};

struct Ranked {
    Key key = 0;
    IdGroup before;  // all ids in front of it

    __device__ IdGroup prefix() const {
        IdGroup group = before;
        group.add({mass_of(weight_of(key)), 1});
        return group;
    }
};

// Memory of a block's ranking; `bins` and what is below in shared memory.
struct RankWorkspace {
    const float* weights;  // [V] in [0, 1]
    int32_t vocab;
    Bins* top;        // level 0: ids of weight above 0 by bucket
    Key* candidates;  // [V] the ids of one bucket
    Bins* bins;       // of the level at hand
};
struct RankShared {
    IdGroup of_warps[kRankThreads / kWarpSize];
    Ranked found;  // with the bin in place of the key
    int32_t num_candidates;
};

__device__ inline void clear_bins(Bins& bins) {
    for (int i = static_cast<int>(threadIdx.x); i < kNumBins; i += kRankThreads) {
        bins.mass[i] = 0;
        bins.count[i] = 0;
    }
    __syncthreads();
}

// visit(i, values[i], true) for all i in [0, count), and with false where a warp reaches past the
// end: whole warps visit, and read several values before they look at the first.
template <class T, class Visit>
__device__ void visit_all(const T* values, int32_t count, Visit visit) {
    constexpr int kAhead = 8;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    for (int32_t first = thread; first - lane_idx() < count; first += kAhead * kRankThreads) {
        T ahead[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
            const int32_t i = first + k * kRankThreads;
            ahead[k] = i < count ? values[i] : T{};
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
            const int32_t i = first + k * kRankThreads;
            visit(i, ahead[k], i < count);
        }
    }
}

// 64 bits as two halves: shared memory adds 32 bits at once, more only by trying until nobody
// interferes. Each overflow of the lower half is seen by the one addition that causes it.
__device__ inline void add_mass(Mass& to, Mass mass) {
    auto* halves = reinterpret_cast<uint32_t*>(&to);
    const auto low = static_cast<uint32_t>(mass);
    const uint32_t before = atomicAdd(halves, low);
    const uint32_t carry = before + low < before ? 1 : 0;
    const uint32_t high = static_cast<uint32_t>(mass >> 32) + carry;
    if (high != 0) atomicAdd(halves + 1, high);
}

__device__ inline void add_group(Bins& bins, int bin, const IdGroup& group) {
    add_mass(bins.mass[bin], group.mass);
    atomicAdd(&bins.count[bin], group.count);
}

// A warp's lanes add an id each, those for which it is there. Flat weights meet in a few bins,
// where atomics would wait for each other: the first two bins of a warp get one addition each.
__device__ inline void add_to_bins(Bins& bins, bool is_there, int bin, float weight) {
    constexpr int kHalfBits = 24;  // sums of 32 halves fit 32 bits
    const Mass mass = is_there ? mass_of(weight) : 0;
    unsigned left = __ballot_sync(kAllLanes, is_there);
    for (int i = 0; i < 2 && left != 0; ++i) {
        const int first = __ffs(static_cast<int>(left)) - 1;
        const int bin_of_first = __shfl_sync(kAllLanes, bin, first);  // of all lanes, there or not
        const bool is_same = is_there && bin == bin_of_first;
        const unsigned same = __ballot_sync(kAllLanes, is_same);
        const auto low = static_cast<unsigned>(mass & ((1u << kHalfBits) - 1));
        const auto high = static_cast<unsigned>(mass >> kHalfBits);
        const Mass low_sum = __reduce_add_sync(kAllLanes, is_same ? low : 0u);
        const Mass high_sum = __reduce_add_sync(kAllLanes, is_same ? high : 0u);
        if (lane_idx() == first) {
            add_group(bins, bin, {low_sum + (high_sum << kHalfBits), __popc(same)});
        }
        left &= ~same;
    }
    if (left >> lane_idx() & 1u) add_group(bins, bin, {mass, 1});
}

__device__ inline IdGroup inclusive_scan_lanes(IdGroup group) {
#pragma unroll
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const Mass mass = __shfl_up_sync(kAllLanes, group.mass, offset);
        const int32_t count = __shfl_up_sync(kAllLanes, group.count, offset);
        if (lane_idx() >= offset) group.add({mass, count});
    }
    return group;
}

// The bin in which `point` lies when the bins follow `before`, from the last to the first; the
// caller has made sure that there is one. All threads call it and get the same.
__device__ inline Ranked find_bin(const Bins& bins, const IdGroup& before, const RankPoint& point,
                                  RankShared& shared) {
    // Thread i owns the bins from last - (i + 1) * kBinsPerThread + 1 up.
    const int last = kNumBins - 1 - static_cast<int>(threadIdx.x) * kBinsPerThread;
    IdGroup own;
    for (int i = 0; i < kBinsPerThread; ++i) own.add({bins.mass[last - i], bins.count[last - i]});
    const IdGroup up_to_own = inclusive_scan_lanes(own);
    if (lane_idx() == kWarpSize - 1) shared.of_warps[warp_idx()] = up_to_own;
    __syncthreads();
    IdGroup group = before;
    for (int w = 0; w < warp_idx(); ++w) group.add(shared.of_warps[w]);
    group.add({up_to_own.mass - own.mass, up_to_own.count - own.count});
    for (int i = 0; i < kBinsPerThread; ++i) {
        IdGroup with_bin = group;
        with_bin.add({bins.mass[last - i], bins.count[last - i]});
        if (!point.is_in(group) && point.is_in(with_bin)) {
            shared.found = {static_cast<Key>(last - i), group};
        }
        group = with_bin;
    }
    __syncthreads();
    return shared.found;
}

// Lists the ids of a bucket, in any order.
__device__ inline void collect_bucket(const RankWorkspace& work, int bucket, RankShared& shared) {
    if (threadIdx.x == 0) shared.num_candidates = 0;
    __syncthreads();
    visit_all(work.weights, work.vocab, [&](int32_t id, float weight, bool is_there) {
        const bool is_in = is_there && weight != 0.0f && bucket_of(weight) == bucket;
        const unsigned all = __ballot_sync(kAllLanes, is_in);
        int32_t at = 0;
        if (lane_idx() == 0 && all != 0) at = atomicAdd(&shared.num_candidates, __popc(all));
        at = __shfl_sync(kAllLanes, at, 0) + __popc(all & ((1u << lane_idx()) - 1));
        if (is_in) work.candidates[at] = key_of(weight, id);
    });
    __syncthreads();
}

// The id at `point`, which lies before the end of the ids of weight above 0.
__device__ inline Ranked id_at(const RankWorkspace& work, const RankPoint& point,
                               RankShared& shared) {
    Ranked found = find_bin(*work.top, {}, point, shared);
    collect_bucket(work, static_cast<int>(found.key), shared);
    found.key <<= kTopShift;
    for (int shift = kTopShift - kBinBits; shift >= 0; shift -= kBinBits) {
        clear_bins(*work.bins);
        const Key upper = found.key >> (shift + kBinBits);
        visit_all(work.candidates, shared.num_candidates, [&](int32_t, Key key, bool is_there) {
            const bool is_in = is_there && key >> (shift + kBinBits) == upper;
            add_to_bins(*work.bins, is_in, static_cast<int>(key >> shift) & (kNumBins - 1),
                        weight_of(key));
        });
        __syncthreads();
        const Ranked bin = find_bin(*work.bins, found.before, point, shared);
        found = {found.key | bin.key << shift, bin.before};
    }
    return found;
}

}  // namespace k3pod::kernels
