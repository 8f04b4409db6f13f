#include "volumes.h"

#include <algorithm>
#include <cmath>

namespace k3pod {
namespace {

// Coefficients of z^0 .. z^top_k: ways to pick so many of `count` experts. `count` may be a
// fraction, the mean over layers of slightly different counts.
std::vector<double> ways_to_pick(double count, int32_t top_k) {
    std::vector<double> ways{1.0};
    for (int32_t picked = 1; picked <= top_k; ++picked) {
        ways.push_back(ways.back() * std::max(0.0, count - picked + 1) / picked);
    }
    return ways;
}

// Ways of a whole layer in which no holder is picked more often than its limit.
class PickCounter {
  public:
    PickCounter(std::span<const HolderGroup> groups, double grains_per_layer, double total_grains,
                int32_t top_k)
        : groups_(groups), product_(static_cast<size_t>(top_k) + 1) {
        for (const HolderGroup& group : groups) {
            ways_.push_back(ways_to_pick(group.volume * grains_per_layer / total_grains, top_k));
        }
    }

    // limits[g]: picks that each member of group g may get.
    double within(std::span<const int32_t> limits) {
        std::fill(product_.begin(), product_.end(), 0.0);
        product_.front() = 1;
        for (size_t g = 0; g < groups_.size(); ++g) {
            for (size_t m = 0; m < groups_[g].members.size(); ++m) multiply(ways_[g], limits[g]);
        }
        return product_.back();
    }

  private:
    void multiply(const std::vector<double>& ways, int32_t limit) {
        const auto top = static_cast<size_t>(limit);
        for (size_t sum = product_.size(); sum-- > 0;) {
            double value = 0;
            for (size_t x = 0; x <= std::min(top, sum); ++x) value += ways[x] * product_[sum - x];
            product_[sum] = value;
        }
    }

    std::span<const HolderGroup> groups_;
    std::vector<std::vector<double>> ways_;
    std::vector<double> product_;
};

}  // namespace

std::vector<HolderGroup> group_holders(std::span<const int64_t> room_grains,
                                       std::span<const double> speeds) {
    std::vector<HolderGroup> groups;
    for (size_t h = 0; h < room_grains.size(); ++h) {
        if (room_grains[h] == 0) continue;
        const auto room = static_cast<double>(room_grains[h]);
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const HolderGroup& g) {
            return g.room == room && g.speed == speeds[h];
        });
        if (same != groups.end()) {
            same->members.push_back(h);
        } else {
            groups.push_back({.members = {h}, .room = room, .speed = speeds[h], .volume = 0});
        }
    }
    return groups;
}

void fill_level(std::vector<HolderGroup>& groups, double total_grains) {
    std::vector<HolderGroup*> by_level;  // the first to be full first
    double speed = 0;
    for (HolderGroup& group : groups) {
        by_level.push_back(&group);
        speed += group.total_speed();
    }
    std::stable_sort(by_level.begin(), by_level.end(), [](const auto* a, const auto* b) {
        return a->room * b->speed < b->room * a->speed;
    });
    double left = total_grains;
    for (HolderGroup* group : by_level) {
        group->volume = std::min(group->room, left * group->speed / speed);
        left -= group->total_volume();
        speed -= group->total_speed();
    }
}

double mean_slowest_s(std::span<const HolderGroup> groups, double grains_per_layer,
                      double total_grains, int32_t top_k, double grain_bytes) {
    std::vector<double> pick_s, moments;
    for (const HolderGroup& group : groups) {
        pick_s.push_back(grain_bytes / group.speed);
        for (int32_t picks = 1; picks <= top_k; ++picks) moments.push_back(picks * pick_s.back());
    }
    std::sort(moments.begin(), moments.end());
    PickCounter counter(groups, grains_per_layer, total_grains, top_k);
    const std::vector<int32_t> unlimited(groups.size(), top_k);
    const double all = counter.within(unlimited);
    // The mean of a time is the sum over moments of the chance that it is not over yet.
    std::vector<int32_t> limits(groups.size(), 0);
    double mean = 0;
    double last = 0;
    for (const double moment : moments) {
        if (moment == last) continue;
        for (size_t g = 0; g < groups.size(); ++g) {
            const auto done = static_cast<int32_t>(last / pick_s[g] * (1 + 1e-12));
            limits[g] = std::min(top_k, done);
        }
        const double over = counter.within(limits) / all;
        mean += (moment - last) * (1 - over);
        if (over > 1 - 1e-9) break;
        last = moment;
    }
    return mean;
}

void shorten_tail(std::vector<HolderGroup>& groups, double grains_per_layer, double total_grains,
                  int32_t top_k, double grain_bytes) {
    constexpr int kMaxTries = 300;
    const auto measure = [&] {
        return mean_slowest_s(groups, grains_per_layer, total_grains, top_k, grain_bytes);
    };
    double best = measure();
    int tries = 0;
    for (double step = total_grains / 8; step >= total_grains / 4096; step /= 2) {
        for (bool has_improved = true; has_improved && tries < kMaxTries;) {
            has_improved = false;
            for (HolderGroup& from : groups) {
                for (HolderGroup& to : groups) {
                    const double room = (to.room - to.volume) * to.size();
                    const double moved = std::min({step, from.total_volume(), room});
                    if (&from == &to || moved < 1 || tries >= kMaxTries) continue;
                    from.volume -= moved / from.size();
                    to.volume += moved / to.size();
                    ++tries;
                    if (const double now = measure(); now < best * (1 - 1e-9)) {
                        best = now;
                        has_improved = true;
                    } else {
                        from.volume += moved / from.size();
                        to.volume -= moved / to.size();
                    }
                }
            }
        }
    }
}

}  // namespace k3pod
