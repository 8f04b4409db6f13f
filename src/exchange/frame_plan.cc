#include "exchange/frame_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace k3pod::exchange {
namespace {

// A pick as one number that sorts by (expert, row); the lowest 16 bits say which pick of its row.
constexpr uint64_t pick_key(uint64_t expert, uint64_t row, uint64_t k) {
    return expert << 32 | row << 16 | k;
}
constexpr uint16_t expert_of(uint64_t key) {
    return static_cast<uint16_t>(key >> 32);
}
constexpr uint16_t row_of(uint64_t key) {
    return static_cast<uint16_t>(key >> 16);
}
constexpr uint16_t k_of(uint64_t key) {
    return static_cast<uint16_t>(key);
}

Status check_count(const char* what, int64_t found, int64_t expected) {
    if (found == expected) return Status::ok();
    return invalid_argument(fmt::format("dispatch: {} is {}, expected {}", what, found, expected));
}

}  // namespace

FramePlan::FramePlan(const wire::FrameLimits& limits, size_t num_holders)
    : limits_(limits), frames_(num_holders) {
    const auto max_rows = static_cast<size_t>(limits.max_rows);
    const size_t max_picks = max_rows * static_cast<size_t>(limits.top_k);
    picks_.reserve(max_picks);
    for (Frame& frame : frames_) {
        frame.rows.reserve(max_rows);
        frame.frame_row.resize(max_rows);
        frame.entries.reserve(max_picks);
    }
}

Status FramePlan::plan(const RoutedRows& step, const HolderTable& holders) {
    for (Frame& frame : frames_) {
        frame.rows.clear();
        frame.entries.clear();
    }
    K3POD_TRY(check_shape(step, holders));
    K3POD_TRY(sort_picks(step));
    choose_rows(step, holders);
    add_entries(step, holders);
    return Status::ok();
}

Status FramePlan::check_shape(const RoutedRows& step, const HolderTable& holders) const {
    if (step.rows < 0 || step.rows > limits_.max_rows) {
        return invalid_argument(fmt::format("dispatch: {} rows, the exchange has room for {}",
                                            step.rows, limits_.max_rows));
    }
    if (step.top_k < 1 || step.top_k > limits_.top_k) {
        return invalid_argument(
            fmt::format("dispatch: top_k is {}, expected 1 to {}", step.top_k, limits_.top_k));
    }
    if (!holders.has_layer(step.layer)) {
        return invalid_argument(
            fmt::format("dispatch: layer {} has no experts in the placement", step.layer));
    }
    K3POD_TRY(check_count("latent", step.latent, limits_.latent));
    const int64_t num_picks = int64_t{step.rows} * step.top_k;
    K3POD_TRY(check_count("the number of latents", std::ssize(step.latents),
                          int64_t{step.rows} * step.latent));
    K3POD_TRY(check_count("the number of experts", std::ssize(step.experts), num_picks));
    return check_count("the number of weights", std::ssize(step.weights), num_picks);
}

Status FramePlan::sort_picks(const RoutedRows& step) {
    picks_.clear();
    size_t i = 0;
    for (int32_t row = 0; row < step.rows; ++row) {
        for (int32_t k = 0; k < step.top_k; ++k, ++i) {
            if (step.experts[i] >= limits_.num_experts || !std::isfinite(step.weights[i])) {
                return invalid_argument(fmt::format(
                    "dispatch: pick {} of row {} is expert {} with weight {}; expected an expert "
                    "below {} and a finite weight",
                    k, row, step.experts[i], step.weights[i], limits_.num_experts));
            }
            picks_.push_back(
                pick_key(step.experts[i], static_cast<uint64_t>(row), static_cast<uint64_t>(k)));
        }
    }
    std::ranges::sort(picks_);
    const auto repeat = std::ranges::adjacent_find(
        picks_, [](uint64_t a, uint64_t b) { return a >> 16 == b >> 16; });
    if (repeat == picks_.end()) return Status::ok();
    return invalid_argument(
        fmt::format("dispatch: row {} picks expert {} twice", row_of(*repeat), expert_of(*repeat)));
}

void FramePlan::choose_rows(const RoutedRows& step, const HolderTable& holders) {
    size_t i = 0;
    for (int32_t r = 0; r < step.rows; ++r) {
        const auto row = static_cast<uint16_t>(r);
        for (int32_t k = 0; k < step.top_k; ++k, ++i) {
            for (const uint16_t holder : holders.of(step.layer, step.experts[i])) {
                Frame& frame = frames_[holder];
                if (!frame.rows.empty() && frame.rows.back() == row) continue;
                frame.frame_row[row] = static_cast<uint16_t>(frame.rows.size());
                frame.rows.push_back(row);
            }
        }
    }
}

void FramePlan::add_entries(const RoutedRows& step, const HolderTable& holders) {
    for (const uint64_t pick : picks_) {
        const uint16_t row = row_of(pick);
        const size_t i = size_t{row} * static_cast<size_t>(step.top_k) + k_of(pick);
        for (const uint16_t holder : holders.of(step.layer, expert_of(pick))) {
            Frame& frame = frames_[holder];
            frame.entries.push_back({.row = frame.frame_row[row],
                                     .expert = expert_of(pick),
                                     .weight = step.weights[i]});
        }
    }
}

}  // namespace k3pod::exchange
