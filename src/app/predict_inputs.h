#pragma once
// From a pod file, a placement and a model's config.json to what predict() wants.

#include <filesystem>
#include <string>
#include <vector>

#include "commands.h"
#include "k3pod/config/pod_config.h"
#include "k3pod/config/predict_constants.h"
#include "k3pod/placement/fabric.h"
#include "k3pod/placement/predict.h"

namespace k3pod {

struct PredictSetup {
    std::string pod_name;
    PredictModel model;
    Placement placement;
    std::vector<PredictHolder> holders;
    Popularity popularity;
    PredictConstants constants;
    FabricReport fabric;
    std::string overfull;      // the holder that has no room for its part; empty when all have
    double station_bytes = 0;  // of weights that a token meets outside the experts

    PredictInput input() const { return {model, placement, holders, popularity, constants}; }
};

// kInvalidArgument names the file and what does not belong together.
Result<PredictSetup> read_predict_setup(const PodConfig& pod, const PredictOptions& options);

}  // namespace k3pod
