#pragma once
// What `k3pod predict` reckons with: how long a step's parts take and how fast memories and links
// are, each figure with where it comes from. One TOML file, whose keys are all required:
//
//   [server]
//   bandwidth = { value = "208 GB/s", source = "GB10 expert kernel at M = 4" }
//
// Benches write such files; configs/constants-k3-pod.toml is the one that is built in.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct Constant {
    double value = 0;    // in s, bytes/s, bits/s, FLOP/s, or a share
    std::string source;  // where the figure was measured or derived
    bool operator==(const Constant&) const = default;
};

struct PredictConstants {
    // [station], seconds. A layer's parts with one row and an empty cache:
    Constant kda_attention, mla_attention;  // mix, norm, projections, core, output
    Constant moe_front;       // what precedes the dispatch: mix, norm, router, latent down
    Constant shared_experts;  // runs while the expert servers work
    Constant moe_tail;        // what follows the combine: norm, latent up
    Constant dense_mlp;       // instead of the three above where a layer has no experts
    Constant head;            // once a step: embedding, final norm, head, sampling
    // What more comes with size:
    Constant kda_sequence;      // a KDA layer, for every further sequence (its state)
    Constant kda_row;           // a KDA layer, for every further token of a sequence
    Constant mla_cached_token;  // an MLA layer, for every cached token of every sequence
    Constant draft;             // once a step with drafts
    Constant compute;           // FLOP/s that large batches sustain
    // [station], bytes/s of reading experts:
    Constant hbm_bandwidth, host_bandwidth;

    // [server]
    Constant server_bandwidth;  // bytes/s of reading experts, kernel included
    Constant server_compute;    // FLOP/s

    // [exchange]
    Constant round_trip;    // s, one row there and back without expert work: software and wire
    Constant server_link;   // bits/s of one expert server
    Constant station_link;  // bits/s of the station, all legs together

    // [routing]
    Constant pick_reuse;  // share of a token's picks that the token before it had too

    bool operator==(const PredictConstants&) const = default;
};

// kInvalidArgument names file, line, key, value and what is expected.
Result<PredictConstants> parse_predict_constants(std::string_view text,
                                                 const std::filesystem::path& file);
Result<PredictConstants> read_predict_constants(const std::filesystem::path& file);
// configs/constants-k3-pod.toml as it was when this was built.
const PredictConstants& default_predict_constants();

// As the file has them; parse(to_toml(c)) == c.
std::string to_toml(const PredictConstants& constants);

// One constant for people: "server", "bandwidth", "208 GB/s".
struct ConstantLine {
    std::string section, key, value, source;
};
std::vector<ConstantLine> list_constants(const PredictConstants& constants);

}  // namespace k3pod
