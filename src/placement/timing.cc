#include "timing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

// What one holder reads of an expert.
struct Part {
    uint16_t holder;
    int32_t columns;
    double seconds;
};

// The placement as lists of parts, side by side in memory.
class PartTable {
  public:
    PartTable(const Placement& placement, const PlacementProblem& problem)
        : seconds_per_column_(placement.holders.size()) {
        for (size_t h = 0; h < placement.holders.size(); ++h) {
            const auto holder =
                std::find_if(problem.holders.begin(), problem.holders.end(),
                             [&](const Holder& x) { return x.name == placement.holders[h]; });
            K3POD_CHECK(holder != problem.holders.end(), "a placement names the problem's holders");
            seconds_per_column_[h] =
                static_cast<double>(problem.shape.bytes_per_column) / holder->bytes_per_s;
        }
        begin_.reserve(placement.slices.size() + 1);
        begin_.push_back(0);
        for (const auto& slices : placement.slices) {
            add(slices);
            begin_.push_back(parts_.size());
        }
        add_replicas(placement);
    }

    std::span<const Part> first_copy(size_t expert) const {
        return std::span(parts_).subspan(begin_[expert], begin_[expert + 1] - begin_[expert]);
    }
    // Further copies of an expert, each a list of parts.
    struct Copy {
        size_t expert, begin, end;
    };
    std::span<const Copy> copies(size_t expert) const {
        const auto [from, to] =
            std::equal_range(copies_.begin(), copies_.end(), Copy{expert, 0, 0},
                             [](const Copy& a, const Copy& b) { return a.expert < b.expert; });
        return {from, to};
    }
    std::span<const Part> parts(const Copy& copy) const {
        return std::span(parts_).subspan(copy.begin, copy.end - copy.begin);
    }
    bool has_copies() const { return !copies_.empty(); }

  private:
    void add(std::span<const PlacedSlice> slices) {
        for (const PlacedSlice& slice : slices) {
            const int32_t columns = slice.end - slice.begin;
            parts_.push_back({static_cast<uint16_t>(slice.holder), columns,
                              columns * seconds_per_column_[static_cast<size_t>(slice.holder)]});
        }
    }

    void add_replicas(const Placement& placement) {
        for (const Replica& replica : placement.replicas) {
            const int64_t layer_idx = replica.layer - placement.first_layer;
            const auto expert =
                static_cast<size_t>(layer_idx * placement.num_experts + replica.expert);
            const size_t begin = parts_.size();
            add(replica.slices);
            copies_.push_back({expert, begin, parts_.size()});
        }
    }

    std::vector<double> seconds_per_column_;
    std::vector<size_t> begin_;
    std::vector<Part> parts_;
    std::vector<Copy> copies_;  // sorted by expert
};

// The load of one step's layer on every holder.
class LayerLoad {
  public:
    LayerLoad(const PartTable& table, size_t num_holders)
        : table_(table), seconds_(num_holders), columns_(num_holders) {}

    // `base` is the number of the layer's first expert.
    void read(std::span<const uint16_t> experts, size_t base, ReplicaUse replicas) {
        std::fill(seconds_.begin(), seconds_.end(), 0.0);
        waiting_.clear();
        const bool has_choice = replicas == ReplicaUse::kChosen && table_.has_copies();
        for (const uint16_t expert : experts) {
            if (has_choice && !table_.copies(base + expert).empty()) {
                waiting_.push_back(base + expert);
            } else {
                add(table_.first_copy(base + expert));
            }
        }
        for (const size_t expert : waiting_) add(best_copy(expert));
    }
    const std::vector<double>& seconds() const { return seconds_; }
    const std::vector<double>& columns() const { return columns_; }  // of all reads so far

  private:
    void add(std::span<const Part> parts) {
        for (const Part& part : parts) {
            seconds_[part.holder] += part.seconds;
            columns_[part.holder] += part.columns;
        }
    }
    double done_after(std::span<const Part> parts) const {
        double done = 0;
        for (const Part& part : parts) {
            done = std::max(done, seconds_[part.holder] + part.seconds);
        }
        return done;
    }
    std::span<const Part> best_copy(size_t expert) const {
        std::span<const Part> best = table_.first_copy(expert);
        for (const PartTable::Copy& copy : table_.copies(expert)) {
            const std::span<const Part> parts = table_.parts(copy);
            if (done_after(parts) < done_after(best)) best = parts;
        }
        return best;
    }

    const PartTable& table_;
    std::vector<double> seconds_;
    std::vector<double> columns_;
    std::vector<size_t> waiting_;  // experts with a choice come last
};

struct MeanAndError {
    double mean = 0, error = 0;
};

MeanAndError mean_of(const std::vector<double>& values) {
    const auto count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return {mean, std::sqrt(squares / std::max(count - 1, 1.0) / count)};
}

// The holders that the busiest-to-mean ratio is about.
std::vector<size_t> peers_of(const Placement& placement) {
    std::vector<size_t> servers, all;
    for (size_t h = 0; h < placement.holders.size(); ++h) {
        all.push_back(h);
        if (!is_station_tier(placement.holders[h])) servers.push_back(h);
    }
    return servers.empty() ? all : servers;
}

}  // namespace

StepTimes times_over(const Placement& placement, const PlacementProblem& problem,
                     const StepDraws& draws, ReplicaUse replicas) {
    const PartTable table(placement, problem);
    const size_t num_holders = placement.holders.size();
    const std::vector<size_t> peers = peers_of(placement);
    LayerLoad load(table, num_holders);
    std::vector<double> slowest, busiest;
    StepTimes times;
    times.holder_s.assign(num_holders, 0.0);
    for (int32_t layer = 0; layer < placement.num_layers; ++layer) {
        const auto base = static_cast<size_t>(int64_t{layer} * placement.num_experts);
        for (int32_t draw = 0; draw < draws.per_layer(); ++draw) {
            load.read(draws.experts(layer, draw), base, replicas);
            const std::vector<double>& seconds = load.seconds();
            for (size_t h = 0; h < num_holders; ++h) times.holder_s[h] += seconds[h];
            slowest.push_back(*std::max_element(seconds.begin(), seconds.end()));
            double peak = 0;
            for (const size_t h : peers) peak = std::max(peak, seconds[h]);
            busiest.push_back(peak);
        }
    }
    for (double& seconds : times.holder_s) seconds /= static_cast<double>(slowest.size());
    times.slowest_s = mean_of(slowest).mean;
    times.slowest_error_s = mean_of(slowest).error;
    double peers_s = 0;
    for (const size_t h : peers) peers_s += times.holder_s[h] / static_cast<double>(peers.size());
    if (peers_s > 0) {
        times.busiest_to_mean = mean_of(busiest).mean / peers_s;
        times.busiest_to_mean_error = mean_of(busiest).error / peers_s;
    }
    times.picks_share = load.columns();
    const double read = std::accumulate(times.picks_share.begin(), times.picks_share.end(), 0.0);
    for (double& share : times.picks_share) share /= read;
    return times;
}

StepTimes expected_times(const Placement& placement, const PlacementProblem& problem,
                         int32_t tokens, ReplicaUse replicas) {
    StepTimes times =
        times_over(placement, problem, StepDraws(problem.popularity, tokens), replicas);
    times.tokens = tokens;
    return times;
}

}  // namespace k3pod
