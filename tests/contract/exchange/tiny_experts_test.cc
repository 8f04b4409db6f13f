// The demo checkpoint's experts behind the exchange answer with the same bits as the same experts
// in this process, whole and sliced, with the station's own tier and without.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "k3pod/exchange/exchange.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_weights.h"
#include "tests/support/local_experts.h"

namespace k3pod::testing {
namespace {

constexpr int32_t kMaxRows = 8;

struct Tiny {
    Checkpoint checkpoint;
    ModelConfig config;
    Release release;
};

Result<Tiny> open_tiny() {
    const std::filesystem::path dir = std::filesystem::path(K3POD_SOURCE_DIR) / "models/k3-tiny";
    K3POD_ASSIGN(Checkpoint checkpoint, Checkpoint::open(dir));
    K3POD_ASSIGN(ModelConfig config, read_model_config(dir));
    K3POD_ASSIGN(const Release release, check_model(checkpoint, config));
    return Tiny{std::move(checkpoint), config, release};
}

struct Case {
    const char* name;
    PlacementMode mode;
    int32_t num_holders;
    int32_t station;  // this holder is the station's own tier; -1: none
    bool reply_f32;
};

struct Step {
    RoutedRows rows;
    std::vector<float> latents, weights;
    std::vector<uint16_t> experts;
};

std::unique_ptr<Step> random_step(const ModelConfig& config, uint32_t seed, int32_t rows,
                                  int32_t layer) {
    auto step = std::make_unique<Step>();
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> all(static_cast<size_t>(config.num_experts));
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<uint16_t>(e);
    for (int32_t r = 0; r < rows; ++r) {
        for (int32_t c = 0; c < config.latent; ++c) step->latents.push_back(normal(random));
        std::ranges::shuffle(all, random);
        for (int32_t k = 0; k < config.top_k; ++k) {
            step->experts.push_back(all[static_cast<size_t>(k)]);
            step->weights.push_back(std::abs(normal(random)));
        }
    }
    step->rows = {.step = seed,
                  .layer = layer,
                  .rows = rows,
                  .latent = config.latent,
                  .top_k = config.top_k,
                  .latents = step->latents,
                  .experts = step->experts,
                  .weights = step->weights};
    return step;
}

// A pod over loopback whose servers hold the placement's shards.
class TinyPod {
  public:
    Status start(const Tiny& tiny, const Placement& placement, bool reply_f32) {
        ExchangeOptions options;
        options.limits = {.latent = tiny.config.latent,
                          .num_layers = tiny.config.num_layers,
                          .num_experts = tiny.config.num_experts,
                          .top_k = tiny.config.top_k,
                          .max_rows = kMaxRows};
        options.reply_f32 = reply_f32;
        options.frame_deadline = std::chrono::seconds(20);
        options.heartbeats_missed = 100;
        const MakeTransport transport =
            [network = make_loopback_network()](
                TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
            return make_loopback_transport(network, handler);
        };
        for (size_t h = 0; h < placement.holders.size(); ++h) {
            K3POD_ASSIGN(std::unique_ptr<ExpertStore> store,
                         ExpertStore::load(tiny.checkpoint, tiny.config, tiny.release,
                                           placement.shards_of(static_cast<int32_t>(h)), nullptr));
            stores_.push_back(std::move(store));
            if (placement.holders[h] == "station") {
                local_ = std::make_unique<ExpertRunner>(*stores_[h], kMaxRows);
            }
        }
        K3POD_ASSIGN(client_, ExchangeClient::create(options, placement, transport, local_.get(),
                                                     clock_, station_metrics_, nullptr));
        for (size_t h = 0; h < placement.holders.size(); ++h) {
            if (placement.holders[h] == "station") continue;
            K3POD_TRY(start_server(options, placement, h, transport));
        }
        return Status::ok();
    }
    ExchangeClient& client() { return *client_; }

  private:
    Status start_server(const ExchangeOptions& options, const Placement& placement, size_t h,
                        const MakeTransport& transport) {
        K3POD_ASSIGN(std::unique_ptr<ExchangeServer> server,
                     ExchangeServer::create(options, transport, clock_, server_metrics_));
        Assignment assignment;
        assignment.session = 100 + h;
        assignment.epoch = placement.epoch;
        assignment.node_index = static_cast<uint16_t>(h);
        assignment.max_rows = kMaxRows;
        assignment.station_address = client_->local_address();
        K3POD_TRY(server->open_session(assignment, stores_[h]));
        K3POD_TRY(
            client_->attach(placement.holders[h], server->local_address(), assignment.session));
        servers_.push_back(std::move(server));
        return Status::ok();
    }

    SteadyClock clock_;
    MetricsRegistry station_metrics_, server_metrics_;
    std::vector<std::shared_ptr<const ExpertStore>> stores_;
    std::unique_ptr<ExpertRunner> local_;
    std::unique_ptr<ExchangeClient> client_;
    std::vector<std::unique_ptr<ExchangeServer>> servers_;
};

class TinyExperts : public ::testing::TestWithParam<Case> {};

TEST_P(TinyExperts, answer_behind_the_exchange_as_in_this_process) {
    const auto tiny = open_tiny();
    ASSERT_TRUE(tiny.is_ok()) << tiny.status().to_string();
    auto placement = even_placement(tiny->config, GetParam().mode, GetParam().num_holders);
    ASSERT_TRUE(placement.is_ok()) << placement.status().to_string();
    if (GetParam().station >= 0) {
        placement->holders[static_cast<size_t>(GetParam().station)] = "station";
    }
    const auto local = LocalExperts::load(
        tiny->checkpoint, tiny->config, tiny->release, *placement,
        {.max_rows = kMaxRows,
         .rounding = GetParam().reply_f32 ? WireRounding::kLatents : WireRounding::kBoth});
    ASSERT_TRUE(local.is_ok()) << local.status().to_string();
    TinyPod pod;
    const Status started = pod.start(*tiny, *placement, GetParam().reply_f32);
    ASSERT_TRUE(started.is_ok()) << started.to_string();
    ASSERT_TRUE(pod.client().missing().empty());

    uint32_t seed = 1;
    for (int32_t layer = tiny->config.first_dense_layers; layer < tiny->config.num_layers;
         ++layer) {
        for (const int32_t rows : {1, 3, kMaxRows}) {
            const auto step = random_step(tiny->config, seed++, rows, layer);
            std::vector<float> near(step->latents.size()), far(step->latents.size());
            ASSERT_TRUE((*local)->dispatch(step->rows).is_ok());
            ASSERT_TRUE((*local)->combine(near).is_ok());
            ASSERT_TRUE(pod.client().dispatch(step->rows).is_ok());
            const Status combined = pod.client().combine(far);
            ASSERT_TRUE(combined.is_ok()) << combined.to_string();
            ASSERT_EQ(near, far) << "seed " << seed - 1 << ", layer " << layer;
        }
    }
}

// The station's own tier keeps its sums in fp32, so it is compared with fp32 replies.
INSTANTIATE_TEST_SUITE_P(
    Placements, TinyExperts,
    ::testing::Values(Case{"one_server", PlacementMode::kWhole, 1, -1, false},
                      Case{"three_whole", PlacementMode::kWhole, 3, -1, false},
                      Case{"two_sliced", PlacementMode::kSliced, 2, -1, false},
                      Case{"two_sliced_f32", PlacementMode::kSliced, 2, -1, true},
                      Case{"station_and_two", PlacementMode::kWhole, 3, 1, true}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace k3pod::testing
