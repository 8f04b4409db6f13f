#include "move_experts.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace k3pod {
namespace {

struct Movable {
    double chance;  // that a step reads it
    int32_t expert;
    PlacedSlice* slice;
};

// One holder's part of a layer.
struct Part {
    double end_s = 0;
    std::vector<Movable>
        slices{};  // the least popular first, so that the most popular is at the back
};

class LayerMover {
  public:
    LayerMover(std::span<const HolderPace> paces, int32_t target)
        : paces_(paces), target_(static_cast<size_t>(target)) {}

    void load(Placement& placement, std::span<const double> chance, int32_t layer_idx,
              int32_t rows) {
        parts_.assign(paces_.size(), {});
        for (size_t h = 0; h < paces_.size(); ++h) parts_[h].end_s = paces_[h].fixed_s;
        const auto first = static_cast<size_t>(layer_idx) * chance.size();
        for (size_t e = 0; e < chance.size(); ++e) {
            const double read = 1 - std::pow(1 - std::min(1.0, chance[e]), rows);
            for (PlacedSlice& slice : placement.slices[first + e]) {
                Part& part = parts_[static_cast<size_t>(slice.holder)];
                part.slices.push_back({read, static_cast<int32_t>(e), &slice});
                part.end_s += seconds(part.slices.back(), static_cast<size_t>(slice.holder));
            }
        }
        for (Part& part : parts_) {
            std::sort(part.slices.begin(), part.slices.end(), [](const auto& a, const auto& b) {
                return std::tie(a.chance, b.expert) < std::tie(b.chance, a.expert);
            });
        }
    }

    // Columns moved, at most `limit`.
    int64_t move(int64_t limit) {
        int64_t moved = 0;
        while (true) {
            const size_t last = last_holder();
            if (last == target_ || parts_[last].slices.empty()) return moved;
            const Movable movable = parts_[last].slices.back();
            const int64_t columns = movable.slice->end - movable.slice->begin;
            const double after_s = parts_[target_].end_s + seconds(movable, target_);
            if (moved + columns > limit || after_s >= parts_[last].end_s) return moved;
            parts_[last].slices.pop_back();
            parts_[last].end_s -= seconds(movable, last);
            parts_[target_].end_s = after_s;
            movable.slice->holder = static_cast<int32_t>(target_);
            moved += columns;
        }
    }

  private:
    double seconds(const Movable& movable, size_t holder) const {
        return movable.chance * (movable.slice->end - movable.slice->begin) *
               paces_[holder].seconds_per_column;
    }
    // The lower number where two are equal. A holder without experts is not waited for.
    size_t last_holder() const {
        size_t last = target_;
        for (size_t h = 0; h < parts_.size(); ++h) {
            const bool is_waited_for = h != target_ && !parts_[h].slices.empty();
            if (is_waited_for && parts_[h].end_s > parts_[last].end_s) last = h;
        }
        return last;
    }

    std::span<const HolderPace> paces_;
    size_t target_;
    std::vector<Part> parts_;
};

}  // namespace

void move_experts(Placement& placement, const Popularity& popularity, int32_t rows, int32_t target,
                  int64_t max_columns, std::span<const HolderPace> paces) {
    LayerMover mover(paces, target);
    int64_t moved = 0;
    for (int32_t layer = 0; layer < placement.num_layers; ++layer) {
        // What earlier layers left over, because their slices are wider than a layer's part.
        const int64_t allowed =
            max_columns / placement.num_layers * (layer + 1) +
            max_columns % placement.num_layers * (layer + 1) / placement.num_layers;
        mover.load(placement, popularity.of_layer(layer), layer, rows);
        moved += mover.move(allowed - moved);
    }
    for (auto& slices : placement.slices) {
        std::sort(slices.begin(), slices.end(),
                  [](const auto& a, const auto& b) { return a.begin < b.begin; });
    }
}

}  // namespace k3pod
