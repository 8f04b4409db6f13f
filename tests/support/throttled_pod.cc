#include "tests/support/throttled_pod.h"

#include <thread>

#include "tests/support/local_experts.h"

namespace k3pod::testing {
namespace {

constexpr int32_t kMaxRows = 64;

// Real experts that take as long as reading them at the rate takes.
FrameWork throttled(std::shared_ptr<const ExpertStore> store, double bytes_per_s) {
    auto runner = std::make_shared<ExpertRunner>(*store, kMaxRows);
    return [store, runner, bytes_per_s](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                                        std::span<const wire::WireEntry> entries,
                                        std::span<float> out) -> Status {
        const auto start = std::chrono::steady_clock::now();
        K3POD_TRY(runner->run(layer, rows, latents, entries, out));
        int64_t bytes = 0;
        for (size_t i = 0; i < entries.size(); ++i) {
            if (i > 0 && entries[i].expert == entries[i - 1].expert) continue;
            for (const HeldShard& shard : store->find(layer, entries[i].expert)) {
                bytes += shard.size_bytes();
            }
        }
        std::this_thread::sleep_until(
            start + std::chrono::duration_cast<Nanoseconds>(
                        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s)));
        return Status::ok();
    };
}

MakeTransport late(std::shared_ptr<LoopbackNetwork> network, const Clock& clock,
                   Nanoseconds delay) {
    return [network, &clock, delay](TransportHandler& handler) {
        FaultPlan plan;
        plan.min_delay = plan.max_delay = delay;
        return make_faulty_transport(
            plan, clock,
            [&](TransportHandler& inner) -> Result<std::unique_ptr<Transport>> {
                return make_loopback_transport(network, inner);
            },
            handler);
    };
}

}  // namespace

HeldExperts HeldExperts::load(PlacementMode mode, int32_t num_holders) {
    const std::filesystem::path dir = K3POD_SOURCE_DIR "/models/k3-tiny";
    const Checkpoint checkpoint = Checkpoint::open(dir).value();
    const ModelConfig config = read_model_config(dir).value();
    const Release release = check_model(checkpoint, config).value();
    HeldExperts held{even_placement(config, mode, num_holders).value(), {}};
    for (int32_t h = 0; h < num_holders; ++h) {
        held.stores.push_back(
            ExpertStore::load(checkpoint, config, release, held.placement.shards_of(h), nullptr)
                .value());
    }
    return held;
}

ThrottledPod::ThrottledPod(const HeldExperts& held, double bytes_per_s, Nanoseconds delay)
    : held_(held) {
    const ModelConfig& config = held.stores[0]->config();
    options_.limits.latent = config.latent;
    options_.limits.num_layers = config.num_layers;
    options_.limits.num_experts = config.num_experts;
    options_.limits.top_k = config.top_k;
    options_.limits.max_rows = kMaxRows;
    options_.frame_deadline = std::chrono::seconds(10);
    auto client = ExchangeClient::create(options_, held.placement, late(network_, clock_, {}),
                                         FrameWork(), clock_, registries_["station"],
                                         [](const std::string&, const Status&) {});
    if (!client.is_ok()) {
        status_ = client.status();
        return;
    }
    client_ = std::move(*client);
    for (size_t h = 0; h < held.stores.size() && status_.is_ok(); ++h) {
        status_ = start(h, bytes_per_s, delay);
    }
}

ThrottledPod::~ThrottledPod() {
    client_.reset();
    servers_.clear();
}

Status ThrottledPod::start(size_t holder, double bytes_per_s, Nanoseconds delay) {
    const std::string& name = held_.placement.holders[holder];
    K3POD_ASSIGN(auto server, ExchangeServer::create(options_, late(network_, clock_, delay),
                                                     clock_, registries_[name]));
    Assignment assignment;
    assignment.session = 1000 + holder;
    assignment.epoch = held_.placement.epoch;
    assignment.node_index = static_cast<uint16_t>(holder);
    assignment.max_rows = options_.limits.max_rows;
    assignment.station_address = client_->local_address();
    K3POD_TRY(server->open_session(assignment, throttled(held_.stores[holder], bytes_per_s)));
    const std::vector<std::byte> address = server->local_address();
    servers_.push_back(std::move(server));
    return client_->attach(name, address, assignment.session);
}

}  // namespace k3pod::testing
