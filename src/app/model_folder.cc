#include "model_folder.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "commands.h"
#include "k3pod/experts/expert_tier.h"
#include "pod_plan.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_text(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
        return not_found(fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
    }
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

uint64_t fingerprint_of(const std::string& config_text, const Checkpoint& checkpoint) {
    uint64_t hash = XXH3_64bits(config_text.data(), config_text.size());
    for (const TensorInfo& tensor : checkpoint.tensors()) {
        hash = XXH3_64bits_withSeed(tensor.name.data(), tensor.name.size(), hash);
        hash = XXH3_64bits_withSeed(tensor.shape.data(), tensor.shape.size_bytes(), hash);
        const int64_t place[] = {static_cast<int64_t>(tensor.dtype), tensor.offset_bytes,
                                 tensor.size_bytes};
        hash = XXH3_64bits_withSeed(place, sizeof(place), hash);
    }
    return hash;
}

int64_t physical_memory_bytes() {
    return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

}  // namespace

Result<ModelFolder> open_model_folder(const fs::path& dir) {
    K3POD_ASSIGN(const std::string text, read_text(dir / "config.json"));
    K3POD_ASSIGN(ModelConfig config, read_model_config(dir));
    K3POD_ASSIGN(Checkpoint checkpoint, Checkpoint::open(dir));
    K3POD_ASSIGN(const Release release, check_model(checkpoint, config));
    const uint64_t fingerprint = fingerprint_of(text, checkpoint);
    return ModelFolder{std::move(config), std::move(checkpoint), release, fingerprint};
}

Result<GenerationDefaults> read_generation_defaults(const fs::path& dir) {
    GenerationDefaults defaults;
    const fs::path file = dir / "generation_config.json";
    std::error_code error;
    if (!fs::exists(file, error)) return defaults;
    K3POD_ASSIGN(const std::string text, read_text(file));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return data_loss(fmt::format("{} is not a JSON object", file.string()));
    const auto read = [&](const char* key, float low, float high, float& out) -> Status {
        if (!json.contains(key)) return Status::ok();
        const auto& value = json[key];
        if (!value.is_number() || value.get<float>() < low || value.get<float>() > high) {
            return data_loss(fmt::format("{}: {} must be a number from {} to {}", file.string(),
                                         key, low, high));
        }
        out = value.get<float>();
        return Status::ok();
    };
    K3POD_TRY(read("temperature", 0.0f, 2.0f, defaults.temperature));
    K3POD_TRY(read("top_p", 1e-6f, 1.0f, defaults.top_p));
    return defaults;
}

Status check_node(const std::string& node, Backend backend, int64_t budget_bytes) {
    const bool is_gpu = backend == Backend::kCuda;
    int64_t memory_bytes = physical_memory_bytes();
    if (is_gpu) {
        const Result<CudaProperties> gpu = usable_gpu();
        if (!gpu.is_ok()) {
            return gpu.status().with_context(
                fmt::format("{}: backend = \"cuda\" in the pod file", node));
        }
        memory_bytes = gpu->memory_bytes;
    }
    if (budget_bytes > memory_bytes) {
        return invalid_argument(fmt::format(
            "{}: expert_budget is {} bytes but this machine{} has {} bytes of memory; lower it in "
            "the pod file",
            node, budget_bytes, is_gpu ? "'s GPU" : "", memory_bytes));
    }
    return Status::ok();
}

Result<Placement> make_placement(const PodConfig& pod, const ModelFolder& model) {
    const PlanModel plan_model{model.config,
                               count_model_bytes(model.checkpoint, model.config, model.release)};
    if (pod.placement.file.empty()) {
        K3POD_ASSIGN(PodPlan plan, plan_pod(pod, plan_model));
        if (!plan.placement) return does_not_fit(plan);
        return std::move(*plan.placement);
    }
    K3POD_ASSIGN(Placement placement, read_placement(pod.placement.file));
    K3POD_ASSIGN(const std::vector<MemoryPlan> memories, plan_memories(pod, plan_model));
    const Status checked =
        check_placement(placement, placement_shape(pod, plan_model), budgets_of(memories));
    if (!checked) return checked.with_context(pod.placement.file.string());
    return placement;
}

NodeIdentity make_identity(const PodConfig& pod, const ModelFolder& model,
                           const std::string& node) {
    NodeIdentity identity;
    identity.node = node;
    identity.build_id = build_id();
    identity.wire_version = wire::kVersion;
    identity.transport = pod.exchange.transport == TransportName::kShm   ? "ucx/shm"
                         : pod.exchange.transport == TransportName::kTcp ? "ucx/tcp"
                                                                         : "ucx/rc";
    identity.ucx_version = ucx_version();
    identity.model_fingerprint = model.fingerprint;
    std::random_device random;
    identity.process_id = (uint64_t{random()} << 32) | random();
    return identity;
}

ExchangeOptions make_exchange_options(const PodConfig& pod, const ModelConfig& config) {
    ExchangeOptions options;
    options.limits.latent = config.latent;
    options.limits.num_layers = config.num_layers;
    options.limits.num_experts = config.num_experts;
    options.limits.top_k = config.top_k;
    options.limits.max_rows = pod.station.max_batch_tokens;
    options.wait = pod.exchange.spin ? WaitPolicy::kSpin : WaitPolicy::kAuto;
    options.reply_f32 = pod.exchange.reply_f32;
    options.check_payload = pod.exchange.payload_check == CheckMode::kOn ||
                            (pod.exchange.payload_check == CheckMode::kAuto &&
                             pod.exchange.transport == TransportName::kTcp);
    options.frame_deadline = pod.exchange.frame_deadline;
    options.heartbeat_interval = pod.exchange.heartbeat_interval;
    options.heartbeats_missed = pod.exchange.heartbeats_missed;
    return options;
}

MakeTransport make_transport_factory(const PodConfig& pod, const std::string& device) {
    UcxOptions options;
    options.device = device;
    options.kind = pod.exchange.transport == TransportName::kShm   ? TransportKind::kShm
                   : pod.exchange.transport == TransportName::kTcp ? TransportKind::kTcp
                                                                   : TransportKind::kRc;
    return [options](TransportHandler& handler) { return make_ucx_transport(options, handler); };
}

}  // namespace k3pod
