#include "dealing.h"

#include <algorithm>
#include <cmath>

#include "k3pod/base/check.h"

namespace k3pod {

GrainDealer::GrainDealer(const Deck& deck, size_t num_holders)
    : deck_(deck),
      num_holders_(num_holders),
      grains_(static_cast<size_t>(deck.num_experts) * num_holders, 0),
      owed_(num_holders, 0.0) {
    order_.reserve(static_cast<size_t>(deck.num_experts));
}

void GrainDealer::deal(size_t expert, std::span<const double> shares) {
    order_.push_back(expert);
    const std::span<uint16_t> grains = grains_of(expert);
    int64_t left = deck_.grains_per_expert;
    for (size_t h = 0; h < num_holders_; ++h) {
        owed_[h] += shares[h] * static_cast<double>(deck_.grains_per_expert);
        const int64_t whole = std::clamp<int64_t>(static_cast<int64_t>(owed_[h]), 0, left);
        grains[h] = static_cast<uint16_t>(whole);
        owed_[h] -= static_cast<double>(whole);
        left -= whole;
    }
    for (; left > 0; --left) {
        const auto most = std::max_element(owed_.begin(), owed_.end());
        ++grains[static_cast<size_t>(most - owed_.begin())];
        *most -= 1;
    }
}

void GrainDealer::keep_within(std::span<const int64_t> capacities) {
    std::vector<int64_t> room(capacities.begin(), capacities.end());
    for (size_t i = 0; i < grains_.size(); ++i) room[i % num_holders_] -= grains_[i];
    for (size_t from = 0; from < num_holders_; ++from) {
        for (size_t i = order_.size(); room[from] < 0 && i-- > 0;) {
            const std::span<uint16_t> grains = grains_of(order_[i]);
            while (grains[from] > 0 && room[from] < 0) {
                const auto to = std::max_element(room.begin(), room.end());
                K3POD_CHECK(*to > 0, "the capacities hold all grains");
                --grains[from];
                ++grains[static_cast<size_t>(to - room.begin())];
                --*to;
                ++room[from];
            }
        }
    }
}

std::vector<std::vector<PlacedSlice>> GrainDealer::slices() const {
    std::vector<std::vector<PlacedSlice>> all(static_cast<size_t>(deck_.num_experts));
    for (size_t expert = 0; expert < all.size(); ++expert) {
        int32_t begin = 0;
        for (size_t h = 0; h < num_holders_; ++h) {
            const int32_t columns = grains_[expert * num_holders_ + h] * deck_.grain_columns;
            if (columns == 0) continue;
            all[expert].push_back({begin, begin + columns, static_cast<int32_t>(h)});
            begin += columns;
        }
    }
    return all;
}

}  // namespace k3pod
