#pragma once
// What a pod will do with a placement: the time of a step, part by part, from constants. Nothing is
// measured here. The model and its assumptions: docs/predict.md.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/config/predict_constants.h"
#include "k3pod/placement/placement.h"
#include "k3pod/placement/popularity.h"

namespace k3pod {

// What one step asks of the machines, as far as the model's shape decides it.
struct PredictModel {
    int32_t num_kda_layers = 0;  // by attention, of all layers
    int32_t num_mla_layers = 0;
    int32_t num_dense_layers = 0;  // layers without experts; the placement has the others
    int64_t bytes_per_column = 0;  // of an expert in memory
    int64_t request_row_bytes = 0;
    int64_t reply_row_bytes = 0;
    double station_flops_per_row = 0;
    double flops_per_cached_token = 0;  // one row of a prefill chunk, all MLA layers
    double flops_per_column = 0;        // one row on one column of an expert
};

enum class HolderKind : uint8_t {
    kStation,  // memory that the shared experts are read from as well: its experts come after them
    kStationHost,  // memory of the station that is read beside it
    kServer,       // an expert server, behind the exchange
};

struct PredictHolder {
    std::string name;
    HolderKind kind = HolderKind::kServer;
    double bandwidth = 0;  // bytes/s of reading experts
    double compute = 0;    // FLOP/s
};

struct Workload {
    int32_t sequences = 1;       // decoding at once
    int32_t drafts = 0;          // tokens that a sequence guesses ahead in each step
    double acceptance = 0;       // share of the drafts that turn out right
    int64_t context = 4096;      // cached tokens of each sequence
    int32_t chunk_tokens = 512;  // of a prefill step
    int32_t rows() const { return sequences * (1 + drafts); }
    // Of one sequence: its next token and the accepted drafts.
    double tokens_per_step() const { return 1 + acceptance * drafts; }
};

// Means over a step, seconds, all layers together.
struct PredictedHolder {
    std::string name;
    HolderKind kind = HolderKind::kServer;
    double bytes = 0;       // read
    double busy_s = 0;      // reading and computing
    double exchange_s = 0;  // there and back; 0 on the station
    double slack_s = 0;     // done before the layer's last one
    double last_share = 0;  // of the layers: the others waited for this one
};

struct PredictedStep {
    // The station's own work that nothing runs beside:
    double attention_s = 0, moe_front_s = 0, moe_tail_s = 0, dense_s = 0, head_s = 0, draft_s = 0;
    double shared_s = 0;  // shared experts, under the exchange
    double local_s = 0;   // experts in the memory of kStation, after them
    double wait_s = 0;    // the station waits for experts
    double total_s = 0;   // the sum of all above
    double error_s = 0;   // standard error of total_s: the picks are drawn
    std::vector<PredictedHolder> holders;
    double station_last_share = 0;  // of the layers: experts waited for the station

    double serial_s() const {
        return attention_s + moe_front_s + moe_tail_s + dense_s + head_s + draft_s;
    }
};

struct Prediction {
    Workload workload;
    PredictedStep step;        // shared experts under the exchange
    double tokens_per_s = 0;   // of all sequences together
    double alternating_s = 0;  // a step as two half batches in turn; 0: fewer than two sequences
    double alternating_tokens_per_s = 0;
    PredictedStep prefill;  // one chunk of one sequence
    double prefill_tokens_per_s = 0;
    std::string bound;  // what the step waits for most, for people
};

struct PredictInput {
    const PredictModel& model;
    const Placement& placement;              // replicas are left out, as the pod leaves them out
    std::span<const PredictHolder> holders;  // one for each of the placement's
    const Popularity& popularity;
    const PredictConstants& constants;
};

// The picks of the router are drawn from `popularity`; the same arguments give the same result.
// kInvalidArgument names what is out of range or does not belong together.
Result<Prediction> predict(const PredictInput& input, const Workload& workload);

// The same pod with more in it: the better of a new plan and of experts moved onto it from whoever
// is last.
struct Purchase {
    std::string what;  // "1 more expert server"
    double tokens_per_s = 0;
    double prefill_tokens_per_s = 0;
};
// One to four more expert servers like the fullest there is, and more memory of kStation.
Result<std::vector<Purchase>> predict_purchases(const PredictInput& input,
                                                const Workload& workload);

// The most tokens per second of nodes that each hold an equal part of every weight, with an
// exchange that takes no time: the bound that tensor parallelism is measured against.
double tensor_parallel_bound(double bytes_per_token, int32_t num_nodes,
                             double bandwidth_bytes_per_s);

}  // namespace k3pod
