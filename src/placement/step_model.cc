#include "step_model.h"

#include <algorithm>
#include <cmath>

namespace k3pod {
namespace {

// Picks drawn for one prediction: enough for an error well under a percent, and under 0.1 s.
constexpr int64_t kPickBudget = 1'500'000;
constexpr int64_t kMinDraws = 1;
constexpr int64_t kMaxDraws = 1024;

// The draws of a layer do not depend on the placement, so that two placements meet the same picks.
uint64_t seed_of(int32_t layer_idx, int32_t draw) {
    return (static_cast<uint64_t>(layer_idx) << 32) + static_cast<uint64_t>(draw);
}

// Bits each way at `rate`; both directions of a link carry at once.
double link_time(double rows, int64_t row_bytes, double bits_per_s) {
    return rows * static_cast<double>(row_bytes) * 8 / bits_per_s;
}

}  // namespace

StepRows decode_rows(const Workload& workload) {
    StepRows rows;
    rows.sequences = workload.sequences;
    rows.length = 1 + workload.drafts;
    rows.context = workload.context;
    rows.has_drafts = workload.drafts > 0;
    return rows;
}

StepRows prefill_rows(const Workload& workload) {
    StepRows rows;
    rows.length = workload.chunk_tokens;
    rows.context = workload.context / 2;
    rows.is_prefill = true;
    return rows;
}

StepModel::StepModel(const PredictInput& input)
    : input_(input), loads_(input.placement, input.popularity) {
    now_.holders.resize(input.placement.holders.size());
}

int32_t StepModel::num_draws(int32_t rows) const {
    const int64_t cost = loads_.draw_cost(rows) * input_.placement.num_layers;
    return static_cast<int32_t>(std::clamp(kPickBudget / cost, kMinDraws, kMaxDraws));
}

StepModel::StationTime StepModel::station_time(const StepRows& rows) const {
    const PredictModel& model = input_.model;
    const PredictConstants& c = input_.constants;
    const double kda = model.num_kda_layers, mla = model.num_mla_layers;
    const double moe = input_.placement.num_layers, dense = model.num_dense_layers;
    const double further_sequences = rows.sequences - 1;
    const double further_rows = rows.rows() - rows.sequences;
    const auto cached = static_cast<double>(rows.context);

    // Weights are read once however many rows there are, until computing takes longer.
    const double weights_s = kda * c.kda_attention.value + mla * c.mla_attention.value +
                             moe * (c.moe_front.value + c.shared_experts.value + c.moe_tail.value) +
                             dense * c.dense_mlp.value + c.head.value;
    const double flops =
        rows.rows() * (model.station_flops_per_row +
                       (rows.is_prefill ? cached * model.flops_per_cached_token : 0));
    const double stretch = weights_s > 0 ? std::max(1.0, flops / c.compute.value / weights_s) : 1;

    StationTime time;
    time.attention_s =
        stretch * (kda * c.kda_attention.value + mla * c.mla_attention.value) +
        kda * (c.kda_sequence.value * further_sequences + c.kda_row.value * further_rows) +
        mla * c.mla_cached_token.value * cached * rows.sequences;
    time.front_s = stretch * moe * c.moe_front.value;
    time.shared_s = stretch * moe * c.shared_experts.value;
    time.tail_s = stretch * moe * c.moe_tail.value;
    time.dense_s = stretch * dense * c.dense_mlp.value;
    time.head_s = rows.is_prefill ? c.head.value : stretch * c.head.value;
    time.draft_s = rows.has_drafts ? c.draft.value : 0;
    const double attention_of_moe = time.attention_s * moe / (moe + dense);
    time.per_moe_layer_s = (attention_of_moe + time.front_s + time.shared_s + time.tail_s) / moe;
    time.outside_s =
        time.attention_s - attention_of_moe + time.dense_s + time.head_s + time.draft_s;
    return time;
}

void StepModel::draw_layer(int32_t layer_idx, int32_t draw, const StepRows& rows) {
    const PredictModel& model = input_.model;
    const PredictConstants& c = input_.constants;
    PickDice dice(seed_of(layer_idx, draw));
    const auto& loads =
        loads_.draw(layer_idx, rows.sequences, rows.length, c.pick_reuse.value, dice);
    now_.local_s = 0;
    double frames_rows = 0;
    for (size_t h = 0; h < loads.size(); ++h) {
        const PredictHolder& holder = input_.holders[h];
        const auto row_columns = static_cast<double>(loads[h].row_columns);
        HolderNow& now = now_.holders[h];
        now = {};
        now.bytes = static_cast<double>(loads[h].columns * model.bytes_per_column);
        now.busy_s = std::max(now.bytes / holder.bandwidth,
                              row_columns * model.flops_per_column / holder.compute);
        if (holder.kind == HolderKind::kStation) now_.local_s += now.busy_s;
        if (holder.kind != HolderKind::kServer || loads[h].rows == 0) continue;
        frames_rows += loads[h].rows;
        now.exchange_s =
            c.round_trip.value + link_time(loads[h].rows - 1,
                                           model.request_row_bytes + model.reply_row_bytes,
                                           c.server_link.value);
    }
    const int64_t row_bytes = std::max(model.request_row_bytes, model.reply_row_bytes);
    now_.link_s = frames_rows == 0 ? 0
                                   : c.round_trip.value +
                                         link_time(frames_rows, row_bytes, c.station_link.value);
}

// Holders that are last together share the layer.
void StepModel::blame(double last_s, PredictedStep& step) const {
    const auto is_last = [&](size_t h) {
        return input_.holders[h].kind != HolderKind::kStation &&
               now_.holders[h].end_s() == last_s && last_s > 0;
    };
    int32_t num_last = 0;
    for (size_t h = 0; h < now_.holders.size(); ++h) num_last += is_last(h) ? 1 : 0;
    if (num_last == 0) step.station_last_share += 1;
    for (size_t h = 0; h < now_.holders.size(); ++h) {
        if (is_last(h)) step.holders[h].last_share += 1.0 / num_last;
    }
}

// Adds one drawn layer to sums over draws.
void StepModel::count_layer(double shared_s, PredictedStep& step) {
    const double station_s = shared_s + now_.local_s;
    double last_s = std::max(station_s, now_.link_s);
    for (size_t h = 0; h < now_.holders.size(); ++h) {
        if (input_.holders[h].kind != HolderKind::kStation) {
            last_s = std::max(last_s, now_.holders[h].end_s());
        }
    }
    blame(last_s, step);
    step.local_s += now_.local_s;
    step.wait_s += last_s - station_s;
    for (size_t h = 0; h < now_.holders.size(); ++h) {
        const bool is_station = input_.holders[h].kind == HolderKind::kStation;
        step.holders[h].busy_s += now_.holders[h].busy_s;
        step.holders[h].exchange_s += now_.holders[h].exchange_s;
        step.holders[h].slack_s += last_s - (is_station ? station_s : now_.holders[h].end_s());
        step.holders[h].bytes += now_.holders[h].bytes;
    }
}

PredictedStep StepModel::overlapped(const StepRows& rows) {
    const int32_t num_layers = input_.placement.num_layers;
    const int32_t draws = num_draws(rows.rows());
    const StationTime station = station_time(rows);
    PredictedStep step;
    for (const PredictHolder& holder : input_.holders) {
        step.holders.emplace_back();
        step.holders.back().name = holder.name;
        step.holders.back().kind = holder.kind;
    }
    double variance = 0;  // of the sum over layers
    for (int32_t layer = 0; layer < num_layers; ++layer) {
        double sum = 0, squares = 0;
        for (int32_t draw = 0; draw < draws; ++draw) {
            draw_layer(layer, draw, rows);
            const double before = step.local_s + step.wait_s;
            count_layer(station.shared_s / num_layers, step);
            const double layer_s = step.local_s + step.wait_s - before;
            sum += layer_s;
            squares += layer_s * layer_s;
        }
        variance += std::max(0.0, squares / draws - sum / draws * (sum / draws)) / draws;
    }
    for (PredictedHolder& holder : step.holders) {
        holder.busy_s /= draws;
        holder.exchange_s /= draws;
        holder.slack_s /= draws;
        holder.bytes /= draws;
        holder.last_share /= double(draws) * num_layers;
    }
    step.station_last_share /= double(draws) * num_layers;
    step.attention_s = station.attention_s;
    step.moe_front_s = station.front_s;
    step.moe_tail_s = station.tail_s;
    step.dense_s = station.dense_s;
    step.head_s = station.head_s;
    step.draft_s = station.draft_s;
    step.shared_s = station.shared_s;
    step.local_s /= draws;
    step.wait_s /= draws;
    step.error_s = std::sqrt(variance);
    step.total_s = step.serial_s() + step.shared_s + step.local_s + step.wait_s;
    return step;
}

// In the steady state a layer of both halves takes as long as the slowest of: the station's work on
// both, one half's own chain from station to experts, and the busiest holder's work on both.
double StepModel::alternating_s(const StepRows& half) {
    const int32_t num_layers = input_.placement.num_layers;
    const int32_t draws = num_draws(half.rows());
    const StationTime station = station_time(half);
    double sum = 0;
    for (int32_t layer = 0; layer < num_layers; ++layer) {
        for (int32_t draw = 0; draw < draws; ++draw) {
            draw_layer(layer, draw, half);
            const double station_s = station.per_moe_layer_s + now_.local_s;
            double chain_s = now_.link_s, busiest_s = 0;
            for (size_t h = 0; h < now_.holders.size(); ++h) {
                if (input_.holders[h].kind == HolderKind::kStation) continue;
                chain_s = std::max(chain_s, now_.holders[h].end_s());
                busiest_s = std::max(busiest_s, now_.holders[h].busy_s);
            }
            sum += std::max({2 * station_s, station_s + chain_s, 2 * busiest_s});
        }
    }
    return sum / draws + 2 * station.outside_s;
}

}  // namespace k3pod
