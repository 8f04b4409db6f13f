#include <algorithm>
#include <numeric>

#include "draws.h"
#include "k3pod/placement/solver.h"

namespace k3pod {
namespace {

// Chance that a step reads each expert, of all layers, ascending.
std::vector<double> sorted_read_chances(const PlacementProblem& problem) {
    std::vector<double> chances = problem.popularity.chance;
    for (double& chance : chances) chance = read_chance(chance, problem.batch_tokens);
    if (!problem.popularity.is_uniform) std::sort(chances.begin(), chances.end());
    return chances;
}

// Reads per step of the coldest `experts` experts, all layers together; a part of an expert counts
// as that part of its reads.
class ColdestReads {
  public:
    explicit ColdestReads(std::vector<double> sorted) : sums_(sorted.size() + 1, 0.0) {
        std::partial_sum(sorted.begin(), sorted.end(), sums_.begin() + 1);
    }
    double of(double experts) const {
        const double most = static_cast<double>(sums_.size() - 1);
        experts = std::clamp(experts, 0.0, most);
        const auto whole = static_cast<size_t>(experts);
        if (whole + 1 == sums_.size()) return sums_.back();
        const double part = experts - static_cast<double>(whole);
        return sums_[whole] + part * (sums_[whole + 1] - sums_[whole]);
    }

  private:
    std::vector<double> sums_;
};

}  // namespace

double lower_bound_s(const PlacementProblem& problem) {
    const double expert_bytes =
        static_cast<double>(problem.shape.width * problem.shape.bytes_per_column);
    const double all = static_cast<double>(problem.popularity.chance.size());
    const ColdestReads coldest(sorted_read_chances(problem));
    // Most room for its bandwidth first: a set of holders that must hold much and reads it slowly.
    std::vector<Holder> holders = problem.holders;
    std::stable_sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
        return static_cast<double>(a.budget_bytes) * b.bytes_per_s >
               static_cast<double>(b.budget_bytes) * a.bytes_per_s;
    });
    const auto room = [&](const Holder& holder) {
        return std::min(all, static_cast<double>(holder.budget_bytes) / expert_bytes);
    };
    double room_of_others = 0;
    for (const Holder& holder : holders) room_of_others += room(holder);
    double bound = 0;
    double bandwidth = 0;
    for (const Holder& holder : holders) {
        bandwidth += holder.bytes_per_s;
        room_of_others -= room(holder);
        const double must_hold = std::max(0.0, all - room_of_others);
        bound = std::max(bound, coldest.of(must_hold) * expert_bytes / bandwidth);
    }
    return bound / problem.popularity.num_layers;
}

}  // namespace k3pod
