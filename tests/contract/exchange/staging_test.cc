// Staging over a good wire and a bad one: every shard arrives with the bits that the node would
// have read itself, none is sent twice, and what cannot arrive is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "k3pod/exchange/staging.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/metric_values.h"
#include "tests/unit/experts/tiny_checkpoint.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kMaxRows = 4;
constexpr auto kLimit = std::chrono::seconds(60);

// Counts what is read, and can be told to stop after some experts.
class CountingSource final : public ShardSource {
  public:
    explicit CountingSource(const TinyCheckpoint& tiny)
        : source_(make_checkpoint_source(tiny.checkpoint, tiny.config, tiny.release)) {}

    uint64_t place_of(int32_t layer, int32_t expert) const override {
        return source_->place_of(layer, expert);
    }
    int64_t most_bytes(const Shard& shard) const override { return source_->most_bytes(shard); }
    Result<std::vector<std::shared_ptr<const PackedShard>>> read(
        std::span<const Shard> slices) const override {
        const std::lock_guard lock(mutex_);
        if (num_reads_ == limit_) return data_loss("tensor x is damaged");
        ++num_reads_;
        places_.push_back(place_of(slices[0].layer, slices[0].expert));
        return source_->read(slices);
    }

    void fail_after(int32_t limit) { limit_ = limit; }
    int32_t num_reads() const {
        const std::lock_guard lock(mutex_);
        return num_reads_;
    }
    std::vector<uint64_t> places() const {
        const std::lock_guard lock(mutex_);
        return places_;
    }

  private:
    std::unique_ptr<ShardSource> source_;
    mutable std::mutex mutex_;
    mutable int32_t num_reads_ = 0;
    mutable std::vector<uint64_t> places_;
    int32_t limit_ = -1;
};

std::vector<Shard> columns_of_all(int32_t begin, int32_t end) {
    std::vector<Shard> shards;
    for (int32_t layer = 1; layer <= 8; ++layer) {
        const auto more = layer_shards(layer, begin, end);
        shards.insert(shards.end(), more.begin(), more.end());
    }
    return shards;
}

// A station that stages the demo checkpoint's experts, and the nodes' ends, over loopback.
class Staging : public ::testing::Test {
  protected:
    void start(const FaultPlan& faults = {}, StageOptions options = {}) {
        faults_ = faults;
        auto sender = StageSender::create(options, source_, wire(), clock_, station_metrics_,
                                          [this](const std::string& node, const Status& why) {
                                              const std::lock_guard lock(mutex_);
                                              failures_[node] = why;
                                          });
        ASSERT_TRUE(sender.is_ok()) << sender.status().to_string();
        sender_ = std::move(*sender);
    }

    MakeTransport wire() {
        return [this](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
            FaultPlan plan = faults_;
            plan.seed = faults_.seed * 31 + num_wires_++;
            return make_faulty_transport(
                plan, clock_,
                [this](TransportHandler& inner) -> Result<std::unique_ptr<Transport>> {
                    return make_loopback_transport(network_, inner);
                },
                handler);
        };
    }

    std::vector<uint64_t> stamps(std::span<const Shard> shards, uint64_t fingerprint = 1) const {
        std::vector<uint64_t> all;
        for (const Shard& shard : shards) {
            all.push_back(shard_stamp(tiny_.checkpoint, fingerprint, shard));
        }
        return all;
    }

    std::unique_ptr<StagedLoad> load_of(const std::vector<Shard>& shards,
                                        const std::filesystem::path& cache = {},
                                        uint64_t fingerprint = 1) {
        auto builder =
            TierBuilder::create(Backend::kCpu, tiny_.config, tiny_.release, shards, kMaxRows);
        EXPECT_TRUE(builder.is_ok()) << builder.status().to_string();
        std::optional<ShardCache> opened;
        if (!cache.empty()) opened = ShardCache::open(cache).value();
        return std::make_unique<StagedLoad>(std::move(*builder), shards,
                                            stamps(shards, fingerprint), std::move(opened));
    }

    // Until it is complete, the station has failed the node, or `goes_on` says no.
    Status receive(
        const std::string& node, StagedLoad& load, uint64_t session,
        const std::function<bool()>& goes_on = [] { return true; }) {
        MetricsRegistry& metrics = node_metrics_[node];
        K3POD_ASSIGN(const auto receiver,
                     StageReceiver::create(WaitPolicy::kAuto, wire(), clock_, metrics));
        K3POD_TRY(load.take_from_cache(goes_on));
        if (load.is_complete()) return Status::ok();
        const TimePoint end = clock_.now() + kLimit;
        const Status received = receiver->receive(
            {.id = session,
             .station = sender_->local_address(),
             .is_listening =
                 [&] { sender_->attach(node, receiver->local_address(), session, load.shards()); },
             .has_shard = [](uint32_t) {},
             .goes_on = [&] { return goes_on() && clock_.now() < end && failure(node).is_ok(); }},
            load);
        sender_->detach(node);
        return received;
    }

    Status failure(const std::string& node) {
        const std::lock_guard lock(mutex_);
        return failures_[node];
    }

    // Bits of every answer are those of shards that were read here.
    void expect_same_as_local(StagedLoad& load) {
        ASSERT_TRUE(load.is_complete());
        const std::vector<Shard> shards = load.shards();
        const auto staged = load.build();
        ASSERT_TRUE(staged.is_ok()) << staged.status().to_string();
        const ExpertTierSource source{tiny_.checkpoint, tiny_.config, tiny_.release, shards};
        const auto local = ExpertTier::load(Backend::kCpu, source, kMaxRows, nullptr).value();
        EXPECT_EQ((*staged)->size_bytes(), local->size_bytes());
        EXPECT_EQ((*staged)->num_nvfp4_shards(), local->num_nvfp4_shards());
        for (int32_t layer = 1; layer <= 8; ++layer) {
            std::vector<Bf16> latents;
            for (int32_t i = 0; i < kTinyLatent; ++i) {
                latents.push_back(to_bf16(static_cast<float>((i * 37 + layer) % 101) / 50 - 1));
            }
            for (uint16_t expert = 0; expert < kTinyExperts; ++expert) {
                const std::vector<wire::WireEntry> entries{
                    {.row = 0, .expert = expert, .weight = 1}};
                std::vector<float> near(kTinyLatent), far(kTinyLatent);
                ASSERT_TRUE(local->run(layer, 1, latents, entries, near).is_ok());
                ASSERT_TRUE((*staged)->run(layer, 1, latents, entries, far).is_ok());
                ASSERT_EQ(near, far) << "layer " << layer << " expert " << expert;
            }
        }
    }

    double sent(const std::string& node) {
        return metric_value(station_metrics_, "k3pod_stage_shards_total",
                            {"node=\"" + node + "\"", "way=\"sent\""})
            .value_or(-1);
    }

    SteadyClock clock_;
    TinyCheckpoint tiny_ = TinyCheckpoint::open();
    CountingSource source_{tiny_};
    FaultPlan faults_;
    uint64_t num_wires_ = 0;
    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
    MetricsRegistry station_metrics_;
    std::map<std::string, MetricsRegistry> node_metrics_;
    std::mutex mutex_;
    std::map<std::string, Status> failures_;
    std::unique_ptr<StageSender> sender_;
};

TEST_F(Staging, brings_every_shard_bit_for_bit) {
    start();
    const auto load = load_of(columns_of_all(0, kTinyWidth));
    const Status received = receive("spark-1", *load, 7);
    ASSERT_TRUE(received.is_ok()) << received.to_string();
    expect_same_as_local(*load);
    EXPECT_EQ(source_.num_reads(), 8 * kTinyExperts);
}

TEST_F(Staging, reads_in_the_order_of_the_files) {
    start({}, {.num_readers = 1});
    const auto load = load_of(columns_of_all(0, kTinyWidth));
    ASSERT_TRUE(receive("spark-1", *load, 7).is_ok());
    const std::vector<uint64_t> places = source_.places();
    EXPECT_TRUE(std::ranges::is_sorted(places));
}

TEST_F(Staging, keeps_within_a_buffer_of_one_shard) {
    start({}, {.buffer_bytes = 1});
    const auto load = load_of(columns_of_all(0, kTinyWidth));
    ASSERT_TRUE(receive("spark-1", *load, 7).is_ok());
    expect_same_as_local(*load);
}

TEST_F(Staging, brings_slices_of_one_expert_to_several_nodes) {
    start();
    const auto first = load_of(columns_of_all(0, 96));
    const auto second = load_of(columns_of_all(96, kTinyWidth));
    Status status;
    std::thread other([&] { status = receive("spark-2", *second, 8); });
    const Status received = receive("spark-1", *first, 7);
    other.join();
    ASSERT_TRUE(received.is_ok()) << received.to_string();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    expect_same_as_local(*first);
    expect_same_as_local(*second);
}

TEST_F(Staging, goes_on_in_the_next_session_with_what_is_missing) {
    start({}, {.buffer_bytes = 1});
    const auto load = load_of(columns_of_all(0, kTinyWidth));
    const auto num_here = [&] { return std::ssize(load->shards()) - std::ssize(load->missing()); };
    // Loading is so fast that the first question may come too late to break anything off.
    source_.fail_after(100);
    const Status broken = receive("spark-1", *load, 7);
    EXPECT_EQ(broken.code(), Code::kCancelled);
    EXPECT_THAT(failure("spark-1").message(), HasSubstr("tensor x"));
    const auto before = num_here();
    EXPECT_GT(before, 0);
    EXPECT_LT(before, 8 * kTinyExperts);
    source_.fail_after(-1);
    {
        const std::lock_guard lock(mutex_);
        failures_.clear();
    }
    const Status received = receive("spark-1", *load, 8);
    ASSERT_TRUE(received.is_ok()) << received.to_string();
    expect_same_as_local(*load);
    // Each was confirmed once, but for those whose confirmation the broken session did not read.
    EXPECT_LE(sent("spark-1"), 8 * kTinyExperts);
}

TEST_F(Staging, sends_nothing_to_a_node_that_has_all_in_its_cache) {
    const TempFolder cache;
    start();
    const auto shards = columns_of_all(0, kTinyWidth);
    ASSERT_TRUE(receive("spark-1", *load_of(shards, cache.path()), 7).is_ok());
    const int32_t reads = source_.num_reads();
    const auto again = load_of(shards, cache.path());
    ASSERT_TRUE(receive("spark-1", *again, 8).is_ok());
    EXPECT_EQ(source_.num_reads(), reads);
    EXPECT_EQ(again->num_from_cache(), 8 * kTinyExperts);
    expect_same_as_local(*again);
}

TEST_F(Staging, sends_no_bytes_that_the_cache_holds_when_only_the_stamps_differ) {
    const TempFolder cache;
    start();
    const auto shards = columns_of_all(0, kTinyWidth);
    ASSERT_TRUE(receive("spark-1", *load_of(shards, cache.path()), 7).is_ok());
    const auto again = load_of(shards, cache.path(), 2);
    ASSERT_TRUE(receive("spark-2", *again, 8).is_ok());
    expect_same_as_local(*again);
    EXPECT_EQ(metric_value(node_metrics_["spark-2"], "k3pod_stage_received_bytes_total"), 0);
}

TEST_F(Staging, sends_again_what_is_damaged_on_the_disk) {
    const TempFolder cache;
    start();
    const auto shards = columns_of_all(0, kTinyWidth);
    ASSERT_TRUE(receive("spark-1", *load_of(shards, cache.path()), 7).is_ok());
    const auto file = cache.path() / "layer-3-expert-5-columns-0-128.shard";
    ASSERT_TRUE(std::filesystem::exists(file));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(1000);
    bytes.put('\x5a').put('\x5b').put('\x5c');
    bytes.close();
    const int32_t reads = source_.num_reads();
    const auto again = load_of(shards, cache.path());
    ASSERT_TRUE(receive("spark-1", *again, 8).is_ok());
    EXPECT_EQ(source_.num_reads(), reads + 1);
    expect_same_as_local(*again);
}

TEST_F(Staging, removes_from_the_cache_what_the_node_no_longer_holds) {
    const TempFolder cache;
    start();
    ASSERT_TRUE(receive("spark-1", *load_of(layer_shards(1, 0, 128), cache.path()), 7).is_ok());
    ASSERT_TRUE(receive("spark-1", *load_of(layer_shards(2, 0, 128), cache.path()), 8).is_ok());
    EXPECT_FALSE(std::filesystem::exists(cache.path() / "layer-1-expert-0-columns-0-128.shard"));
    EXPECT_TRUE(std::filesystem::exists(cache.path() / "layer-2-expert-0-columns-0-128.shard"));
}

TEST_F(Staging, names_a_node_that_says_nothing) {
    start({}, {.give_up_after = std::chrono::milliseconds(300)});
    const auto receiver =
        StageReceiver::create(WaitPolicy::kAuto, wire(), clock_, node_metrics_["spark-1"]).value();
    sender_->attach("spark-1", receiver->local_address(), 7, columns_of_all(0, kTinyWidth));
    const TimePoint end = clock_.now() + kLimit;
    while (failure("spark-1").is_ok() && clock_.now() < end) std::this_thread::yield();
    EXPECT_EQ(failure("spark-1").code(), Code::kDeadlineExceeded);
    EXPECT_THAT(failure("spark-1").message(), HasSubstr("spark-1 has said nothing"));
}

struct Wire {
    const char* name;
    FaultPlan faults;
};

class StagingOnABadWire : public Staging, public ::testing::WithParamInterface<Wire> {};

TEST_P(StagingOnABadWire, brings_every_shard_all_the_same) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        FaultPlan faults = GetParam().faults;
        faults.seed = seed;
        start(faults, {.resend_after = std::chrono::milliseconds(30), .max_attempts = 1000});
        const auto load = load_of(columns_of_all(0, kTinyWidth));
        const Status received = receive("spark-1", *load, seed);
        ASSERT_TRUE(received.is_ok())
            << received.to_string() << ", seed " << seed << ": " << failure("spark-1").to_string();
        expect_same_as_local(*load);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, StagingOnABadWire,
    ::testing::Values(Wire{"drops", {.drop_rate = 0.05}}, Wire{"doubles", {.duplicate_rate = 0.3}},
                      Wire{"damages", {.corrupt_rate = 0.05}},
                      Wire{"delays", {.max_delay = std::chrono::milliseconds(2)}},
                      Wire{"all_of_it",
                           {.drop_rate = 0.02,
                            .duplicate_rate = 0.05,
                            .corrupt_rate = 0.02,
                            .max_delay = std::chrono::milliseconds(1)}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace k3pod::testing
