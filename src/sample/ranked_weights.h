#pragma once
// The vocabulary in order of falling weight (ties: the lower id first), sorted only where somebody
// looks. top_k, top_p and min_p each keep a prefix of this order, so one structure serves them all.
//
// Weights fall into buckets by the upper bits of their fp32 form, which grow with the value.
// Walking the few thousand buckets finds the one in which a prefix ends or a draw falls, and only
// that one is sorted. Masses are fixed-point integers: their sums are exact, so a draw can never
// fall between two buckets through rounding. Sorting 163,840 ids would take ten times as long as
// all of this.

#include <cstdint>
#include <span>
#include <vector>

namespace k3pod {

class RankedWeights {
  public:
    // Some ids and what they weigh together, in units of kUnit.
    struct Group {
        uint64_t mass = 0;
        int32_t count = 0;
        void add(const Group& other) {
            mass += other.mass;
            count += other.count;
        }
    };

    explicit RankedWeights(int32_t vocab);

    // [V], each in [0, 1], to be filled before rank(). Weights below kUnit count as 0.
    std::span<float> weights() { return weights_; }
    void rank();

    // Prefixes of the order.
    Group all() const { return all_; }
    // The first `count` ids; all() when there are fewer.
    Group first(int32_t count);
    // The shortest prefix within `bound` that weighs at least `mass`.
    Group reaching(uint64_t mass, const Group& bound);
    // Ids that weigh at least `least`, which is in (0, 1].
    Group at_least(float least);

    // The id at `point` when those of the order are laid end to end, each as long as its mass.
    // point < all().mass.
    int32_t id_at(uint64_t point);

    static constexpr double kUnit = 1.0 / (int64_t{1} << 40);

  private:
    float weight(int32_t id) const { return weights_[static_cast<size_t>(id)]; }
    const Group& at(int32_t bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
    const std::vector<int32_t>& sorted_bucket(int32_t bucket);

    std::vector<float> weights_;   // [V]
    std::vector<Group> buckets_;   // light to heavy
    std::vector<int32_t> sorted_;  // ids of one bucket in order
    int32_t sorted_bucket_ = -1;   // which one; -1: none yet
    Group all_;
};

}  // namespace k3pod
