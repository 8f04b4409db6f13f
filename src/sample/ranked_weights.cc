#include "sample/ranked_weights.h"

#include <algorithm>
#include <bit>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

// 32 buckets per power of two: a bucket spans 3 % of weight.
constexpr int kBucketShift = 18;
constexpr int32_t kNumBuckets =
    static_cast<int32_t>(std::bit_cast<uint32_t>(1.0f) >> kBucketShift) + 1;

int32_t bucket_of(float weight) {
    return static_cast<int32_t>(std::bit_cast<uint32_t>(weight) >> kBucketShift);
}

uint64_t mass_of(float weight) {
    constexpr auto kUnitsPerOne = static_cast<float>(1.0 / RankedWeights::kUnit);
    return static_cast<uint64_t>(static_cast<int64_t>(weight * kUnitsPerOne));
}

// Appends the ids whose weight is in `bucket`, in order. Whole blocks are looked at first, which
// compilers do with vectors: few blocks have any.
void collect(std::span<const float> weights, int32_t bucket, std::vector<int32_t>& ids) {
    constexpr size_t kBlock = 64;
    for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
        const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
        int32_t hits = 0;
        for (const float weight : block) hits += bucket_of(weight) == bucket;
        for (size_t i = 0; hits > 0; ++i) {
            if (bucket_of(block[i]) != bucket) continue;
            ids.push_back(static_cast<int32_t>(begin + i));
            --hits;
        }
    }
}

}  // namespace

RankedWeights::RankedWeights(int32_t vocab)
    : weights_(static_cast<size_t>(vocab)), buckets_(kNumBuckets) {
    sorted_.reserve(static_cast<size_t>(vocab));
}

void RankedWeights::rank() {
    std::fill(buckets_.begin(), buckets_.end(), Group{});
    sorted_bucket_ = -1;
    for (const float weight : weights_) {
        buckets_[static_cast<size_t>(bucket_of(weight))].add({mass_of(weight), 1});
    }
    all_ = {};
    for (const Group& bucket : buckets_) all_.add(bucket);
}

const std::vector<int32_t>& RankedWeights::sorted_bucket(int32_t bucket) {
    if (sorted_bucket_ == bucket) return sorted_;
    sorted_bucket_ = bucket;
    sorted_.clear();
    collect(weights_, bucket, sorted_);
    const auto comes_before = [this](int32_t a, int32_t b) {
        return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
    };
    // The check makes a flat distribution, all in one bucket, as cheap as any other.
    if (!std::is_sorted(sorted_.begin(), sorted_.end(), comes_before)) {
        std::sort(sorted_.begin(), sorted_.end(), comes_before);
    }
    return sorted_;
}

RankedWeights::Group RankedWeights::first(int32_t count) {
    if (count >= all_.count) return all_;
    Group prefix;
    int32_t bucket = kNumBuckets - 1;
    while (prefix.count + at(bucket).count <= count) prefix.add(at(bucket--));
    if (prefix.count == count) return prefix;
    for (const int32_t id : sorted_bucket(bucket)) {
        if (prefix.count == count) break;
        prefix.add({mass_of(weight(id)), 1});
    }
    return prefix;
}

RankedWeights::Group RankedWeights::reaching(uint64_t mass, const Group& bound) {
    if (mass >= bound.mass) return bound;
    Group prefix;
    int32_t bucket = kNumBuckets - 1;
    while (prefix.mass + at(bucket).mass < mass) prefix.add(at(bucket--));
    for (const int32_t id : sorted_bucket(bucket)) {
        if (prefix.count > 0 && prefix.mass >= mass) break;
        prefix.add({mass_of(weight(id)), 1});
    }
    return prefix;
}

RankedWeights::Group RankedWeights::at_least(float least) {
    Group prefix;
    const int32_t last = bucket_of(least);
    for (int32_t bucket = kNumBuckets - 1; bucket > last; --bucket) prefix.add(at(bucket));
    for (const int32_t id : sorted_bucket(last)) {
        if (weight(id) < least) break;
        prefix.add({mass_of(weight(id)), 1});
    }
    return prefix;
}

int32_t RankedWeights::id_at(uint64_t point) {
    int32_t bucket = kNumBuckets - 1;
    while (at(bucket).mass <= point) point -= at(bucket--).mass;
    for (const int32_t id : sorted_bucket(bucket)) {
        const uint64_t mass = mass_of(weight(id));
        if (point < mass) return id;
        point -= mass;
    }
    K3POD_CHECK(false, "a point below the whole mass lies in some bucket");
}

}  // namespace k3pod
