#include "predict_inputs.h"

#include <fmt/format.h>

#include <utility>

#include "fabric_report.h"
#include "k3pod/base/text.h"
#include "k3pod/weights/model_weights.h"
#include "pod_plan.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kBf16Bytes = 2;
constexpr int32_t kF32Bytes = 4;

// Multiplications and additions of every weight that one token meets on the station.
double station_flops(const ModelConfig& c) {
    const double hidden = c.hidden, kda = c.kda_width(), rank = c.kda_head_dim;
    const double kda_layer = hidden * (5 * kda + rank + c.kda_num_heads) + kda * rank;
    const double value = double{1} * c.num_heads * c.v_head_dim;
    const double query = double{1} * c.num_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
    const double key_value = double{1} * c.num_heads * (c.qk_nope_head_dim + c.v_head_dim);
    const double mla_layer = hidden * (c.q_lora_rank + c.mla_cache_width() + 2 * value) +
                             query * c.q_lora_rank + key_value * c.kv_lora_rank;
    const double moe_layer = hidden * (c.num_experts + 2.0 * c.latent + 3.0 * c.shared_width());
    const double dense_layer = hidden * 3.0 * c.intermediate;
    return 2 *
           (c.num_kda_layers() * kda_layer + c.num_mla_layers() * mla_layer +
            c.num_moe_layers() * moe_layer + c.first_dense_layers * dense_layer + hidden * c.vocab);
}

PredictModel predict_model(const PodConfig& pod, const ModelConfig& c, Release format) {
    PredictModel model;
    model.num_kda_layers = c.num_kda_layers();
    model.num_mla_layers = c.num_mla_layers();
    model.num_dense_layers = c.first_dense_layers;
    model.bytes_per_column = expert_shard_bytes(c, format, c.moe_intermediate) / c.moe_intermediate;
    model.request_row_bytes = int64_t{c.latent} * kBf16Bytes;
    model.reply_row_bytes = int64_t{c.latent} * (pod.exchange.reply_f32 ? kF32Bytes : kBf16Bytes);
    model.station_flops_per_row = station_flops(c);
    // Keys and values expanded, as prefill has them.
    const double per_head = c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim;
    model.flops_per_cached_token = 2.0 * c.num_mla_layers() * c.num_heads * per_head;
    model.flops_per_column = 2.0 * 3 * c.latent;
    return model;
}

double rate_of(const MemoryConfig& memory, const Constant& otherwise) {
    return memory.bandwidth_bytes_per_s > 0 ? static_cast<double>(memory.bandwidth_bytes_per_s)
                                            : otherwise.value;
}

Result<PredictHolder> describe_holder(const PodConfig& pod, const PredictConstants& c,
                                      const std::string& name) {
    const StationConfig& station = pod.station;
    if (name == "station") {
        return PredictHolder{name, HolderKind::kStation, c.hbm_bandwidth.value, c.compute.value};
    }
    if (name == "station.hbm") {
        return PredictHolder{name, HolderKind::kStation, rate_of(station.hbm, c.hbm_bandwidth),
                             c.compute.value};
    }
    if (name == "station.host") {
        return PredictHolder{name, HolderKind::kStationHost,
                             rate_of(station.host, c.host_bandwidth), c.compute.value};
    }
    const ExpertConfig* expert = pod.find_expert(name);
    if (expert == nullptr) {
        return invalid_argument(
            fmt::format("the placement gives experts to '{}', which is no node of {}",
                        shortened(name), pod.file.string()));
    }
    return PredictHolder{name, HolderKind::kServer, rate_of(*expert, c.server_bandwidth),
                         c.server_compute.value};
}

Result<Placement> read_checked_placement(const fs::path& file, const ModelConfig& config) {
    K3POD_ASSIGN(Placement placement, read_placement(file));
    const bool is_of_model = placement.first_layer == config.first_dense_layers &&
                             placement.num_layers == config.num_moe_layers() &&
                             placement.num_experts == config.num_experts &&
                             placement.width == config.moe_intermediate;
    if (is_of_model) return placement;
    return invalid_argument(fmt::format(
        "{} places {} experts of width {} in each of {} layers from layer {} on; the model has {} "
        "of width {} in {} layers from layer {} on",
        file.string(), placement.num_experts, placement.width, placement.num_layers,
        placement.first_layer, config.num_experts, config.moe_intermediate, config.num_moe_layers(),
        config.first_dense_layers));
}

Result<Popularity> read_popularity(const PodConfig& pod, const std::vector<std::string>& more,
                                   const ModelConfig& config) {
    std::vector<fs::path> files = pod.placement.traces;
    files.insert(files.end(), more.begin(), more.end());
    std::vector<PickTrace> traces;
    for (const fs::path& file : files) {
        K3POD_ASSIGN(PickTrace trace, read_trace(file));
        traces.push_back(std::move(trace));
    }
    return popularity_of(traces, config.first_dense_layers, config.num_moe_layers(),
                         config.num_experts, config.top_k);
}

// A what-if placement is predicted all the same, but not without this word.
Result<std::string> find_overfull(const PodConfig& pod, const PlanModel& model,
                                  const PredictOptions& options, const Placement& placement) {
    PodConfig counted = pod;
    counted.placement.pack = options.pack == "nvfp4" ? PackChoice::kNvfp4 : PackChoice::kMxfp4;
    K3POD_ASSIGN(const std::vector<MemoryPlan> memories, plan_memories(pod, model));
    const Status fits =
        check_placement(placement, placement_shape(counted, model), budgets_of(memories));
    return fits.is_ok() ? std::string() : fits.message();
}

}  // namespace

Result<PredictSetup> read_predict_setup(const PodConfig& pod, const PredictOptions& options) {
    PredictSetup setup;
    setup.pod_name = pod.name;
    K3POD_ASSIGN(const PlanModel model, read_plan_model(pod, options.config, {}));
    const ModelConfig& config = model.config;
    if (options.constants.empty()) {
        setup.constants = default_predict_constants();
    } else {
        K3POD_ASSIGN(setup.constants, read_predict_constants(options.constants));
    }
    setup.fabric = check_pod_fabric(pod);
    if (setup.fabric.station_bits_per_s > 0) {
        setup.constants.station_link = {static_cast<double>(setup.fabric.station_bits_per_s),
                                        "the station's cables in the pod file"};
    }
    K3POD_ASSIGN(setup.placement, read_checked_placement(options.placement, config));
    for (const std::string& name : setup.placement.holders) {
        K3POD_ASSIGN(PredictHolder holder, describe_holder(pod, setup.constants, name));
        setup.holders.push_back(std::move(holder));
    }
    K3POD_ASSIGN(setup.popularity, read_popularity(pod, options.traces, config));
    K3POD_ASSIGN(setup.overfull, find_overfull(pod, model, options, setup.placement));
    const Release format = options.pack == "nvfp4" ? Release::kNvfp4 : Release::kMxfp4;
    setup.model = predict_model(pod, config, format);
    const double embedding = double{kBf16Bytes} * config.vocab * config.hidden;
    setup.station_bytes = static_cast<double>(model.bytes.text_bytes) - embedding;
    return setup;
}

}  // namespace k3pod
