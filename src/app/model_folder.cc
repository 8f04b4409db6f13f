#include "model_folder.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "commands.h"
#include "k3pod/base/check.h"
#include "k3pod/base/file.h"
#include "k3pod/base/not_json.h"
#include "k3pod/experts/expert_tier.h"
#include "pod_plan.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

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

// What a transport of the pod file is to the other rooms.
struct TransportRow {
    TransportName name;
    TransportKind kind;
    const char* announced;  // in hello
    bool checks_itself;     // bytes cannot arrive damaged unseen, so "auto" adds no checksum
};

const TransportRow& transport_row(const PodConfig& pod) {
    static constexpr TransportRow kRows[] = {
        {TransportName::kShm, TransportKind::kShm, "ucx/shm", true},
        {TransportName::kTcp, TransportKind::kTcp, "ucx/tcp", false},
        {TransportName::kRc, TransportKind::kRc, "ucx/rc", true},
    };
    const auto row = std::ranges::find(kRows, pod.exchange.transport, &TransportRow::name);
    K3POD_CHECK(row != std::end(kRows), "every transport has a row");
    return *row;
}

}  // namespace

Result<ModelFolder> open_model_folder(const fs::path& dir) {
    const fs::path file = dir / "config.json";
    const auto text = read_text_file(file);
    if (!text) {
        return Status(text.status().code(),
                      text.status().message() + "; [pod] model is to name the checkpoint's folder");
    }
    Result<ModelConfig> config = parse_model_config(*text);
    if (!config) return config.status().with_context(file.string());
    K3POD_ASSIGN(Checkpoint checkpoint, Checkpoint::open(dir));
    K3POD_ASSIGN(const Release release, check_model(checkpoint, *config));
    const uint64_t fingerprint = fingerprint_of(*text, checkpoint);
    return ModelFolder{std::move(*config), std::move(checkpoint), release, fingerprint};
}

Result<GenerationDefaults> read_generation_defaults(const fs::path& dir) {
    GenerationDefaults defaults;
    const fs::path file = dir / "generation_config.json";
    std::error_code error;
    if (!fs::exists(file, error)) return defaults;
    K3POD_ASSIGN(const std::string text, read_text_file(file));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) {
        return data_loss(fmt::format("{}: {}", file.string(), not_json(text, "copy it again")));
    }
    if (!json.is_object()) return data_loss(fmt::format("{} is not a JSON object", file.string()));
    const auto read = [&](const char* key, float low, float high, float& out) -> Status {
        if (!json.contains(key)) return Status::ok();
        const auto& value = json[key];
        if (!value.is_number() || value.get<float>() < low || value.get<float>() > high) {
            return data_loss(fmt::format("{}: {}: found {}, expected a number from {} to {}",
                                         file.string(), key, value.dump().substr(0, 60), low,
                                         high));
        }
        out = value.get<float>();
        return Status::ok();
    };
    K3POD_TRY(read("temperature", 0.0f, 2.0f, defaults.temperature));
    K3POD_TRY(read("top_p", 1e-6f, 1.0f, defaults.top_p));
    return defaults;
}

int64_t physical_memory_bytes() {
    return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
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

NodeIdentity make_identity(const PodConfig& pod, uint64_t model_fingerprint,
                           const std::string& node) {
    NodeIdentity identity;
    identity.node = node;
    identity.build_id = build_id();
    identity.wire_version = wire::kVersion;
    identity.transport = transport_row(pod).announced;
    identity.ucx_version = ucx_version();
    identity.model_fingerprint = model_fingerprint;
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
    options.check_payload =
        pod.exchange.payload_check == CheckMode::kOn ||
        (pod.exchange.payload_check == CheckMode::kAuto && !transport_row(pod).checks_itself);
    options.frame_deadline = pod.exchange.frame_deadline;
    options.heartbeat_interval = pod.exchange.heartbeat_interval;
    options.heartbeats_missed = pod.exchange.heartbeats_missed;
    options.hold_timeout = pod.exchange.hold_timeout;
    return options;
}

MakeTransport make_transport_factory(const PodConfig& pod, const std::string& device) {
    UcxOptions options;
    options.device = device;
    options.kind = transport_row(pod).kind;
    return [options](TransportHandler& handler) { return make_ucx_transport(options, handler); };
}

}  // namespace k3pod
