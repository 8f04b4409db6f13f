#pragma once
// How much each holder is given of the whole, before anything is dealt.

#include <cstdint>
#include <span>
#include <vector>

namespace k3pod {

// Holders of the same room and speed; they share evenly.
struct HolderGroup {
    std::vector<size_t> members;
    double room = 0;    // of each member, in grains
    double speed = 0;   // of each member, in bytes a second
    double volume = 0;  // given to each member, in grains
    double size() const { return static_cast<double>(members.size()); }
    double total_volume() const { return volume * size(); }
    double total_speed() const { return speed * size(); }
};

// In the order of their first members. Holders without room are in no group.
std::vector<HolderGroup> group_holders(std::span<const int64_t> room_grains,
                                       std::span<const double> speeds);

// Volumes that add up to `total_grains` and take every group the same time, but for those that are
// full. The groups have room for all.
void fill_level(std::vector<HolderGroup>& groups, double total_grains);

// Whole experts that are picked evenly: the mean time of the slowest holder in a layer whose
// experts are held as the groups' volumes say, exactly. `grains_per_layer` experts, `top_k` of them
// picked.
double mean_slowest_s(std::span<const HolderGroup> groups, double grains_per_layer,
                      double total_grains, int32_t top_k, double grain_bytes);

// Shifts volume between groups as long as mean_slowest_s falls.
void shorten_tail(std::vector<HolderGroup>& groups, double grains_per_layer, double total_grains,
                  int32_t top_k, double grain_bytes);

}  // namespace k3pod
