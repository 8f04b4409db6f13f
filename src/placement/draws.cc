#include "draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace k3pod {
namespace {

constexpr uint64_t kSeed = 0x6b33706f64;
// Of more tokens than this each expert is drawn by itself: that one token picks exactly top_k of
// them no longer shows.
constexpr int32_t kMaxTokensOneByOne = 128;

int32_t draws_per_layer(int32_t tokens) {
    if (tokens <= 1) return 64;
    if (tokens <= 4) return 32;
    if (tokens <= 16) return 12;
    return 6;
}

// One token's picks. A uniform one shuffles as many experts as it needs; otherwise experts lie on a
// line in random order, each as long as its chance, and points one apart from a random start pick
// top_k of them.
class TokenPicker {
  public:
    TokenPicker(const Popularity& popularity, uint64_t seed)
        : popularity_(popularity),
          random_(seed),
          order_(static_cast<size_t>(popularity.num_experts)) {
        std::iota(order_.begin(), order_.end(), uint16_t{0});
    }

    template <class Visit>
    void pick(int32_t layer_idx, Visit visit) {
        if (popularity_.is_uniform) {
            for (size_t i = 0; i < static_cast<size_t>(popularity_.top_k); ++i) visit(shuffled(i));
            return;
        }
        const std::span<const double> chance = popularity_.of_layer(layer_idx);
        double point = random_.unit();
        double end = 0;
        for (size_t i = 0; i < order_.size(); ++i) {
            const uint16_t expert = shuffled(i);
            end += chance[expert];
            if (point >= end) continue;
            visit(expert);
            point += 1;
        }
    }

    // The experts that a step of many tokens reads.
    template <class Visit>
    void pick_for_many(int32_t layer_idx, int32_t tokens, Visit visit) {
        const std::span<const double> chance = popularity_.of_layer(layer_idx);
        for (size_t expert = 0; expert < chance.size(); ++expert) {
            if (random_.unit() < read_chance(chance[expert], tokens)) {
                visit(static_cast<uint16_t>(expert));
            }
        }
    }

  private:
    // The expert at place i, drawn from those at i and behind.
    uint16_t shuffled(size_t i) {
        const size_t j = i + random_.below(static_cast<uint32_t>(order_.size() - i));
        std::swap(order_[i], order_[j]);
        return order_[i];
    }

    const Popularity& popularity_;
    DrawRandom random_;
    std::vector<uint16_t> order_;
};

}  // namespace

StepDraws::StepDraws(const Popularity& popularity, int32_t tokens)
    : per_layer_(draws_per_layer(tokens)) {
    TokenPicker picker(popularity, kSeed + static_cast<uint64_t>(tokens));
    std::vector<bool> is_read(static_cast<size_t>(popularity.num_experts));
    begin_.push_back(0);
    for (int32_t layer = 0; layer < popularity.num_layers; ++layer) {
        for (int32_t draw = 0; draw < per_layer_; ++draw) {
            std::fill(is_read.begin(), is_read.end(), false);
            const auto visit = [&](uint16_t expert) { is_read[expert] = true; };
            if (tokens > kMaxTokensOneByOne) {
                picker.pick_for_many(layer, tokens, visit);
            } else {
                for (int32_t token = 0; token < tokens; ++token) picker.pick(layer, visit);
            }
            for (size_t expert = 0; expert < is_read.size(); ++expert) {
                if (is_read[expert]) experts_.push_back(static_cast<uint16_t>(expert));
            }
            begin_.push_back(experts_.size());
        }
    }
}

double read_chance(double chance, int32_t tokens) {
    return tokens == 1 ? chance : 1 - std::pow(1 - chance, tokens);
}

}  // namespace k3pod
