#pragma once
// From shares, which are fractions, to slices, which are grains.

#include <cstdint>
#include <span>
#include <vector>

#include "deck.h"
#include "k3pod/placement/placement.h"

namespace k3pod {

// Deals expert after expert. What rounding gives a holder too little of one expert it gets more of
// the next, so that its grains never stray from its shares by more than a few.
class GrainDealer {
  public:
    GrainDealer(const Deck& deck, size_t num_holders);

    // shares: of each holder, adding up to 1. Each expert of the deck once, in any order.
    void deal(size_t expert, std::span<const double> shares);

    // Moves grains until no holder has more than its capacity; all together they have room. The
    // experts dealt last are moved first.
    void keep_within(std::span<const int64_t> capacities);

    // Slices of every expert, holders in ascending order.
    std::vector<std::vector<PlacedSlice>> slices() const;

  private:
    std::span<uint16_t> grains_of(size_t expert) {
        return std::span(grains_).subspan(expert * num_holders_, num_holders_);
    }

    const Deck deck_;
    const size_t num_holders_;
    std::vector<uint16_t> grains_;  // [experts, holders]
    std::vector<size_t> order_;     // of dealing
    std::vector<double> owed_;      // grains, per holder; they add up to 0
};

}  // namespace k3pod
