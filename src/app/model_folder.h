#pragma once
// What every node reads of the model folder before it takes part: the same checks on each, so that
// a broken checkpoint stops the start everywhere with the same sentence.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

struct ModelFolder {
    ModelConfig config;
    Checkpoint checkpoint;
    Release release;
    uint64_t fingerprint;  // over config.json's text and the tensor table; the same on every node
};

// Every message names the file; that of a folder without a model says which key of the pod file to
// mend.
Result<ModelFolder> open_model_folder(const std::filesystem::path& dir);

struct GenerationDefaults {
    float temperature = 1.0f;
    float top_p = 1.0f;
};
// DIR/generation_config.json; the defaults above when the file is absent, an error when it is
// damaged.
Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& dir);

int64_t physical_memory_bytes();

// Refuses a back end that this program or machine does not have, and budgets over the memory that
// the back end keeps experts in.
Status check_node(const std::string& node, Backend backend, int64_t budget_bytes);

// From the pod file's placement file, or planned.
Result<Placement> make_placement(const PodConfig& pod, const ModelFolder& model);

// model_fingerprint: 0 for a node that does not read the model.
NodeIdentity make_identity(const PodConfig& pod, uint64_t model_fingerprint,
                           const std::string& node);
ExchangeOptions make_exchange_options(const PodConfig& pod, const ModelConfig& config);
MakeTransport make_transport_factory(const PodConfig& pod, const std::string& device);

}  // namespace k3pod
