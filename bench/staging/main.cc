// How fast shards reach an expert server, against the raw rate of the same transport in the same
// run: two processes, one that sends from memory and one that receives into its store.
//
//   raw      chunks of the same size through the same transport, copied out by the receiver
//   staging  the whole path: packed shards, hashes, confirmations, the store of an expert server

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

#include "bench/support/cores.h"
#include "bench/support/forked.h"
#include "bench/support/or_exit.h"
#include "bench/support/report.h"
#include "k3pod/exchange/staging.h"
#include "k3pod/experts/tier_builder.h"

namespace k3pod::bench {
namespace {

constexpr int32_t kLatent = 3584;
constexpr int32_t kWidth = 3072;
constexpr int kWindow = 32;

struct Plan {
    TransportKind kind = TransportKind::kTcp;
    int num_shards = 64;  // of 17.5 MB
};

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One layer of experts as wide as K3's.
ModelConfig model_config(int num_shards) {
    ModelConfig config;
    config.num_layers = 1;
    config.first_dense_layers = 0;
    config.num_experts = num_shards;
    config.moe_intermediate = kWidth;
    config.latent = kLatent;
    config.top_k = 1;
    return config;
}

std::vector<Shard> shards_of(int num_shards) {
    std::vector<Shard> shards;
    for (int32_t e = 0; e < num_shards; ++e) shards.push_back({0, e, 0, kWidth});
    return shards;
}

PackedShard made_up_shard() {
    const Matrix w1(WeightFormat::kMxfp4, kWidth, kLatent),
        w2(WeightFormat::kMxfp4, kLatent, kWidth);
    PackedShard shard;
    shard.bytes = HostBuffer(packed_shard_bytes(WeightFormat::kMxfp4, kLatent, kWidth));
    pack_shard({.w1 = w1.view(), .w3 = w1.view(), .w2 = w2.view()},
               {shard.bytes.data(), static_cast<size_t>(shard.bytes.size_bytes())});
    seal_packed_shard(shard);
    return shard;
}

// The same shard over and over, ready in memory: what is left is the way to the node.
class MemorySource final : public ShardSource {
  public:
    uint64_t place_of(int32_t, int32_t expert) const override {
        return static_cast<uint64_t>(expert);
    }
    int64_t most_bytes(const Shard&) const override { return shard_->bytes.size_bytes(); }
    Result<std::vector<std::shared_ptr<const PackedShard>>> read(
        std::span<const Shard>) const override {
        return std::vector{shard_};
    }

  private:
    const std::shared_ptr<const PackedShard> shard_ =
        std::make_shared<const PackedShard>(made_up_shard());
};

MakeTransport transport_of(TransportKind kind) {
    return [kind](TransportHandler& handler) {
        return make_ucx_transport({.kind = kind, .device = {}}, handler);
    };
}

// ---- raw ----

class RawEnd final : public TransportHandler {
  public:
    // Room for what is received; touched before the clock runs, as the store is.
    RawEnd(TransportKind kind, int64_t room_bytes)
        : room_(HostBuffer::on_huge_pages(std::max<int64_t>(room_bytes, 1))),
          transport_(value_or_exit(make_ucx_transport({.kind = kind, .device = {}}, *this))) {
        std::memset(room_.data(), 1, static_cast<size_t>(room_.size_bytes()));
    }

    Transport& transport() { return *transport_; }
    int64_t received_bytes = 0;
    int64_t num_messages = 0;
    int in_flight = 0;

    void on_message(std::span<const std::byte>, std::span<const std::byte> payload) override {
        if (!payload.empty()) {
            std::memcpy(room_.data() + received_bytes, payload.data(), payload.size());
        }
        received_bytes += std::ssize(payload);
        ++num_messages;
    }
    void on_sent(uint64_t) override { --in_flight; }
    void on_peer_failed(PeerId, const Status&) override {}  // the other side is done first

  private:
    HostBuffer room_;
    std::unique_ptr<Transport> transport_;
};

void raw_receiver(const Plan& plan, int64_t total_bytes, Line& line) {
    pin_to_core(1);
    RawEnd end(plan.kind, total_bytes);
    const auto station = line.receive<std::byte>();
    const PeerId peer = value_or_exit(end.transport().connect(station, "station"));
    line.send(end.transport().local_address());
    while (end.received_bytes < total_bytes) end.transport().progress();
    const std::byte header[64] = {};
    ok_or_exit(end.transport().send(peer, header, {}, 0));
    end.in_flight = 1;
    while (true) end.transport().progress();
}

double measure_raw(const Plan& plan) {
    const PackedShard shard = made_up_shard();
    const int64_t total = shard.bytes.size_bytes() * plan.num_shards;
    Forked receiver([&](Line& line) { raw_receiver(plan, total, line); });
    pin_to_core(0);
    RawEnd end(plan.kind, 0);
    receiver.line().send(end.transport().local_address());
    const PeerId peer =
        value_or_exit(end.transport().connect(receiver.line().receive<std::byte>(), "receiver"));
    const std::byte header[64] = {};
    const auto all = shard.view();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < plan.num_shards; ++i) {
        for (size_t at = 0; at < all.size(); at += kShardChunkBytes) {
            while (end.in_flight >= kWindow) end.transport().progress();
            const size_t size = std::min<size_t>(kShardChunkBytes, all.size() - at);
            ok_or_exit(end.transport().send(peer, header, all.subspan(at, size), 0));
            ++end.in_flight;
        }
    }
    while (end.num_messages == 0) end.transport().progress();  // it has everything
    return static_cast<double>(total) / seconds_since(start);
}

// ---- staging ----

void staging_receiver(const Plan& plan, Line& line) {
    pin_to_core(1);
    const SteadyClock clock;
    MetricsRegistry metrics;
    const auto shards = shards_of(plan.num_shards);
    const auto receiver = value_or_exit(
        StageReceiver::create(WaitPolicy::kSpin, transport_of(plan.kind), clock, metrics));
    auto builder = value_or_exit(TierBuilder::create(Backend::kCpu, model_config(plan.num_shards),
                                                     Release::kMxfp4, shards, 1));
    // The store is touched before the clock runs: the kernel's clearing of pages is no part of it.
    const int64_t bytes = packed_shard_bytes(WeightFormat::kMxfp4, kLatent, kWidth);
    for (size_t i = 0; i < shards.size(); ++i) {
        const auto room = value_or_exit(builder->room(i, bytes));
        std::memset(room.data(), 1, room.size());
    }
    StagedLoad load(std::move(builder), shards, std::vector<uint64_t>(shards.size(), 1), {});
    const auto station = line.receive<std::byte>();
    ok_or_exit(receiver->receive({.id = 7,
                                  .station = station,
                                  .is_listening = [&] { line.send(receiver->local_address()); },
                                  .has_shard = [](uint32_t) {},
                                  .goes_on = [] { return true; }},
                                 load));
    line.send("x", 1);
    line.receive<char>();
}

double measure_staging(const Plan& plan) {
    Forked receiver([&](Line& line) { staging_receiver(plan, line); });
    pin_to_core(0);
    const SteadyClock clock;
    MetricsRegistry metrics;
    const MemorySource source;
    const auto sender = value_or_exit(StageSender::create(
        {.wait = WaitPolicy::kSpin, .num_readers = 1}, source, transport_of(plan.kind), clock,
        metrics, [](const std::string&, const Status& why) { ok_or_exit(why); }));
    receiver.line().send(sender->local_address());
    const auto address = receiver.line().receive<std::byte>();
    const auto start = std::chrono::steady_clock::now();
    sender->attach("spark-1", address, 7, shards_of(plan.num_shards));
    receiver.line().receive<char>();
    const int64_t total = source.most_bytes({}) * plan.num_shards;
    return static_cast<double>(total) / seconds_since(start);
}

void measure(const Plan& plan, int runs) {
    std::vector<double> raw, staging, shares;
    for (int i = 0; i < runs; ++i) {
        raw.push_back(measure_raw(plan) / 1e9);
        staging.push_back(measure_staging(plan) / 1e9);
        shares.push_back(staging.back() / raw.back());
    }
    nlohmann::ordered_json line = report_header("staging");
    line["transport"] = plan.kind == TransportKind::kShm ? "shm" : "tcp";
    line["shards"] = plan.num_shards;
    line["raw_gb_per_s"] = raw;
    line["staging_gb_per_s"] = staging;
    std::ranges::sort(shares);
    line["share_median"] = shares[shares.size() / 2];
    std::cout << line.dump() << std::endl;
}

}  // namespace

int run(int argc, char** argv) {
    CLI::App app{"Shards to an expert server, against the raw transport of the same run"};
    int shards = 64, runs = 5;
    app.add_option("--shards", shards, "shards of 17.5 MB per run")->check(CLI::Range(1, 1000));
    app.add_option("--runs", runs, "runs of each")->check(CLI::Range(1, 100));
    CLI11_PARSE(app, argc, argv);
    for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
        measure({.kind = kind, .num_shards = shards}, runs);
    }
    return 0;
}

}  // namespace k3pod::bench

int main(int argc, char** argv) {
    return k3pod::bench::run(argc, argv);
}
