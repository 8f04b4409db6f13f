#pragma once
// Random steps: which experts a step of some tokens reads in each layer.

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "k3pod/placement/popularity.h"

namespace k3pod {

// Numbers that are the same on every machine, which the standard's distributions do not promise.
class DrawRandom {
  public:
    explicit DrawRandom(uint64_t seed) : engine_(seed) {}
    // 0 to n - 1.
    uint32_t below(uint32_t n) {
        return static_cast<uint32_t>(((engine_() >> 32) * uint64_t{n}) >> 32);
    }
    double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }  // [0, 1)

  private:
    std::mt19937_64 engine_;
};

// Independent tokens, each with top_k distinct experts and every expert with exactly its chance.
class StepDraws {
  public:
    // The same arguments give the same draws. Fewer per layer for many tokens, whose times differ
    // less.
    StepDraws(const Popularity& popularity, int32_t tokens);

    int32_t per_layer() const { return per_layer_; }
    // Distinct experts that the draw reads, ascending.
    std::span<const uint16_t> experts(int32_t layer_idx, int32_t draw) const {
        const auto i = static_cast<size_t>(layer_idx * per_layer_ + draw);
        return std::span(experts_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
    }

  private:
    int32_t per_layer_ = 0;
    std::vector<size_t> begin_;
    std::vector<uint16_t> experts_;
};

// Chance that a step of `tokens` independent tokens reads an expert that one token picks with
// `chance`.
double read_chance(double chance, int32_t tokens);

}  // namespace k3pod
