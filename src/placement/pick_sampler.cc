#include "pick_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace k3pod {

uint64_t PickDice::roll() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double PickDice::fraction() {
    return static_cast<double>(roll() >> 11) * 0x1p-53;
}

int32_t PickDice::below(int32_t limit) {
    return static_cast<int32_t>((roll() >> 32) * static_cast<uint64_t>(limit) >> 32);
}

PickSampler::PickSampler(const Popularity& popularity)
    : popularity_(popularity),
      order_(static_cast<size_t>(popularity.num_experts)),
      fresh_(static_cast<size_t>(popularity.top_k)),
      marked_(static_cast<size_t>(popularity.num_experts), 0) {
    std::iota(order_.begin(), order_.end(), 0);
}

int64_t PickSampler::draw_cost() const {
    return popularity_.is_uniform ? popularity_.top_k : popularity_.num_experts;
}

bool PickSampler::mark(int32_t expert) {
    uint32_t& seen = marked_[static_cast<size_t>(expert)];
    return std::exchange(seen, mark_) != mark_;
}

void PickSampler::draw(int32_t layer_idx, PickDice& dice, std::span<int32_t> out) {
    if (popularity_.is_uniform) {
        draw_uniform(dice, out);
    } else {
        draw_weighted(popularity_.of_layer(layer_idx), dice, out);
    }
}

// Floyd's: as many rolls as picks, however many experts there are.
void PickSampler::draw_uniform(PickDice& dice, std::span<int32_t> out) {
    start_marks();
    int32_t top = popularity_.num_experts - static_cast<int32_t>(out.size());
    for (int32_t& pick : out) {
        pick = dice.below(top + 1);
        if (!mark(pick)) {
            pick = top;
            mark(pick);
        }
        ++top;
    }
}

// Systematic sampling over a shuffled order: the chances laid end to end, one point in each unit.
// It keeps every chance exactly, also those near one, which drawing one by one does not.
void PickSampler::draw_weighted(std::span<const double> chance, PickDice& dice,
                                std::span<int32_t> out) {
    for (size_t i = order_.size() - 1; i > 0; --i) {
        std::swap(order_[i], order_[static_cast<size_t>(dice.below(static_cast<int32_t>(i) + 1))]);
    }
    double point = dice.fraction(), end = 0;
    size_t found = 0;
    for (const int32_t expert : order_) {
        end += chance[static_cast<size_t>(expert)];
        if (end <= point || found == out.size()) continue;
        out[found++] = expert;
        point += 1;
    }
    // Rounding may leave the last unit a hair short.
    start_marks();
    for (size_t i = 0; i < found; ++i) mark(out[i]);
    for (size_t i = order_.size(); found < out.size() && i-- > 0;) {
        if (mark(order_[i])) out[found++] = order_[i];
    }
}

void PickSampler::follow(int32_t layer_idx, double reuse, PickDice& dice,
                         std::span<int32_t> picks) {
    size_t kept = 0;
    for (const int32_t pick : picks) {
        if (dice.fraction() < reuse) picks[kept++] = pick;
    }
    draw(layer_idx, dice, fresh_);
    start_marks();
    for (size_t i = 0; i < kept; ++i) mark(picks[i]);
    // Of top_k different ones at most `kept` are there already, so the rest suffices.
    for (const int32_t pick : fresh_) {
        if (kept < picks.size() && mark(pick)) picks[kept++] = pick;
    }
}

}  // namespace k3pod
