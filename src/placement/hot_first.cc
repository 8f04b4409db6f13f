#include "hot_first.h"

#include <algorithm>
#include <numeric>

namespace k3pod {
namespace {

// Part of an expert that no group has yet.
struct Remainder {
    size_t expert;
    double amount;  // up to 1
    double reads;   // of a whole expert
};

// Remainders in a row, the most read first, cut at positions measured in experts.
class Pool {
  public:
    explicit Pool(std::vector<Remainder> items) : items_(std::move(items)) { measure(); }

    double volume() const { return volume_.back(); }

    // Reads of everything before a position.
    double reads_before(double position) const {
        const auto end = std::upper_bound(volume_.begin(), volume_.end(), position);
        if (end == volume_.end()) return reads_.back();
        const auto i = static_cast<size_t>(end - volume_.begin()) - 1;
        return reads_[i] + (position - volume_[i]) * items_[i].reads;
    }

    // Takes out the stretch [begin, end) of positions.
    std::vector<Remainder> take(double begin, double end) {
        std::vector<Remainder> taken, left;
        for (size_t i = 0; i < items_.size(); ++i) {
            const double from = std::max(begin, volume_[i]);
            const double to = std::min(end, volume_[i + 1]);
            const double amount = std::max(0.0, to - from);
            if (amount > 0) taken.push_back({items_[i].expert, amount, items_[i].reads});
            if (items_[i].amount > amount) {
                left.push_back({items_[i].expert, items_[i].amount - amount, items_[i].reads});
            }
        }
        items_ = std::move(left);
        measure();
        return taken;
    }

    // Where the stretch of `volume` begins that holds `reads`, or comes nearest to it.
    double begin_of(double volume, double reads) const {
        double low = 0;
        double high = std::max(0.0, this->volume() - volume);
        for (int i = 0; i < 50; ++i) {
            const double middle = (low + high) / 2;
            const double found = reads_before(middle + volume) - reads_before(middle);
            (found > reads ? low : high) = middle;
        }
        return low;
    }

  private:
    void measure() {
        volume_.assign(1, 0.0);
        reads_.assign(1, 0.0);
        for (const Remainder& item : items_) {
            volume_.push_back(volume_.back() + item.amount);
            reads_.push_back(reads_.back() + item.amount * item.reads);
        }
    }

    std::vector<Remainder> items_;
    std::vector<double> volume_, reads_;  // before each item, and of all
};

// Groups [begin, end) of the order, which are all done at the same time.
struct Block {
    size_t begin, end;
    double seconds_per_byte;  // reads / speed
};

// From the groups with most room for their speed, which decide how long a layer takes, to the
// fastest ones. `ends` are the positions where the groups' volumes end, the fastest group first.
std::vector<Block> find_blocks(const Pool& pool, std::span<const HolderGroup> groups,
                               std::span<const size_t> order, std::span<const double> ends) {
    std::vector<Block> blocks;
    for (size_t end = order.size(); end > 0;) {
        Block worst{end - 1, end, -1};
        double speed = 0;
        for (size_t begin = end; begin-- > 0;) {
            speed += groups[order[begin]].total_speed();
            const double start = begin == 0 ? 0.0 : ends[begin - 1];
            const double reads = pool.reads_before(ends[end - 1]) - pool.reads_before(start);
            if (reads / speed >= worst.seconds_per_byte) worst = {begin, end, reads / speed};
        }
        blocks.push_back(worst);
        end = worst.begin;
    }
    return blocks;
}

}  // namespace

std::vector<double> split_hot_first(std::span<const double> reads,
                                    std::span<const HolderGroup> groups,
                                    std::span<const double> volumes) {
    std::vector<size_t> order(groups.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return groups[a].total_speed() * volumes[b] > groups[b].total_speed() * volumes[a];
    });
    std::vector<Remainder> items;
    for (size_t e = 0; e < reads.size(); ++e) items.push_back({e, 1.0, reads[e]});
    std::stable_sort(items.begin(), items.end(),
                     [](const Remainder& a, const Remainder& b) { return a.reads > b.reads; });
    Pool pool(std::move(items));
    std::vector<double> ends;
    for (const size_t g : order) ends.push_back((ends.empty() ? 0.0 : ends.back()) + volumes[g]);
    ends.back() = pool.volume();

    std::vector<double> share(reads.size() * groups.size(), 0.0);
    for (const Block& block : find_blocks(pool, groups, order, ends)) {
        // The block's stretch is the cold end of what is left; its groups share it.
        const double start = block.begin == 0 ? 0.0 : ends[block.begin - 1];
        Pool stretch(pool.take(start, pool.volume()));
        for (size_t i = block.begin; i < block.end; ++i) {
            const size_t g = order[i];
            const bool is_last = i + 1 == block.end;
            const double begin = is_last
                                     ? 0.0
                                     : stretch.begin_of(volumes[g], block.seconds_per_byte *
                                                                        groups[g].total_speed());
            const double end = is_last ? stretch.volume() : begin + volumes[g];
            for (const Remainder& part : stretch.take(begin, end)) {
                share[part.expert * groups.size() + g] += part.amount;
            }
        }
    }
    return share;
}

}  // namespace k3pod
