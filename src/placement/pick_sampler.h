#pragma once
// Draws the experts that a router might pick. The same seed gives the same picks everywhere.

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/placement/popularity.h"

namespace k3pod {

// SplitMix64: the same numbers with every compiler, unlike the standard distributions.
class PickDice {
  public:
    explicit PickDice(uint64_t seed) : state_(seed) {}
    uint64_t roll();
    double fraction();             // [0, 1)
    int32_t below(int32_t limit);  // [0, limit)

  private:
    uint64_t state_;
};

class PickSampler {
  public:
    // Borrows the popularity.
    explicit PickSampler(const Popularity& popularity);

    // top_k experts of a layer, none twice, each with its chance. out: [top_k]
    void draw(int32_t layer_idx, PickDice& dice, std::span<int32_t> out);
    // The picks of the next token of the same text: each pick of the token before stays with
    // probability `reuse`, the others are drawn. In place.
    void follow(int32_t layer_idx, double reuse, PickDice& dice, std::span<int32_t> picks);

    // What draw() costs, in units of a pick.
    int64_t draw_cost() const;

  private:
    void draw_uniform(PickDice& dice, std::span<int32_t> out);
    void draw_weighted(std::span<const double> chance, PickDice& dice, std::span<int32_t> out);
    void start_marks() { ++mark_; }
    // False when it was marked already.
    bool mark(int32_t expert);

    const Popularity& popularity_;
    std::vector<int32_t> order_;    // a permutation of the experts
    std::vector<int32_t> fresh_;    // [top_k]
    std::vector<uint32_t> marked_;  // [E]: equal to mark_ when marked
    uint32_t mark_ = 0;
};

}  // namespace k3pod
