// k3pod fabric hop (E3): 7 KiB to the holders and back as the pod pays it, and where the time goes.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "fabric_commands.h"
#include "hop_report.h"
#include "k3pod/exchange/probe.h"
#include "k3pod/fabric/link.h"
#include "measured_constants.h"
#include "measuring_session.h"
#include "model_folder.h"

namespace k3pod {
namespace {

constexpr int32_t kFanOuts[] = {1, 2, 4, 8};
constexpr int32_t kRows[] = {1, 4, 16, kMostProbeRows};
constexpr int32_t kMostExperts = 64;  // that each server loads a slice of
constexpr Nanoseconds kBulkSlice = std::chrono::milliseconds(20);
constexpr double kMostMissing = 0.05;  // of the whole, that the parts may differ by

// Bulk to all servers at once on a thread, as staging would be.
class Bulk {
  public:
    Bulk(LinkProbe& probe, size_t num_servers)
        : thread_([this, &probe, num_servers] { run(probe, num_servers); }) {}
    Bulk(const Bulk&) = delete;
    Bulk& operator=(const Bulk&) = delete;
    ~Bulk() { static_cast<void>(stop()); }

    // The first thing that went wrong.
    Status stop() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
        return status_;
    }

  private:
    void run(LinkProbe& probe, size_t num_servers) {
        std::vector<int32_t> all(num_servers);
        std::iota(all.begin(), all.end(), 0);
        while (!stop_ && status_) status_ = probe.bandwidth(all, kBulkSlice).status();
    }

    std::atomic<bool> stop_{false};
    Status status_;
    std::thread thread_;  // Last: it uses what is above.
};

class Hop {
  public:
    Hop(const PodConfig& pod, const ModelConfig& config, int32_t rounds)
        : pod_(pod), config_(config), rounds_(rounds) {}

    // Every case with `fan_out` servers, which work on experts or on nothing.
    Status measure(size_t fan_out, bool has_work, std::vector<HopCase>& cases) {
        K3POD_TRY(connect(fan_out, has_work));
        for (const bool has_bulk : {false, true}) {
            for (const int32_t rows : kRows) {
                K3POD_ASSIGN(HopCase one, measure_case(rows, has_bulk));
                one.fan_out = static_cast<int32_t>(fan_out);
                one.has_work = has_work;
                cases.push_back(one);
            }
        }
        return Status::ok();
    }

  private:
    ProbeShape shape() const {
        return {.layer = config_.first_dense_layers,
                .num_experts = std::min(config_.num_experts, kMostExperts),
                .width = config_.moe_intermediate};
    }

    Status connect(size_t fan_out, bool has_work) {
        session_.reset();
        const MakeTransport transport = make_transport_factory(pod_, pod_.station_device);
        std::vector<std::string> servers;
        for (size_t i = 0; i < fan_out; ++i) servers.push_back(pod_.experts[i].name);
        K3POD_ASSIGN(probe_, ExchangeProbe::create(probe_options(pod_, config_), shape(), servers,
                                                   transport));
        K3POD_ASSIGN(bulk_, LinkProbe::create(transport));
        std::vector<std::vector<Shard>> shards(fan_out);
        const Placement placement = probe_placement(shape(), servers);
        for (size_t i = 0; has_work && i < fan_out; ++i) {
            shards[i] = placement.shards_of(static_cast<int32_t>(i));
        }
        const std::vector<Address> addresses{probe_->local_address(), bulk_->local_address()};
        K3POD_ASSIGN(session_, MeasuringSession::open(pod_, addresses, shards));
        for (const MeasuredNode& node : session_->nodes()) {
            K3POD_TRY(probe_->attach(node.name, node.addresses.at(0), node.session));
            K3POD_TRY(bulk_->connect(node.addresses.at(1), node.name));
        }
        return Status::ok();
    }

    Result<HopCase> measure_case(int32_t rows, bool has_bulk) {
        for (int32_t i = 0; i < rounds_ / 4; ++i) K3POD_TRY(probe_->exchange(rows));
        static_cast<void>(probe_->take());
        std::unique_ptr<Bulk> bulk;
        if (has_bulk) bulk = std::make_unique<Bulk>(*bulk_, session_->nodes().size());
        for (int32_t i = 0; i <= rounds_; ++i) K3POD_TRY(probe_->exchange(rows));
        if (bulk) K3POD_TRY(bulk->stop());
        HopCase one = summarise(probe_->take());
        one.rows = rows;
        one.has_bulk = has_bulk;
        return one;
    }

    const PodConfig& pod_;
    const ModelConfig& config_;
    const int32_t rounds_;
    std::unique_ptr<ExchangeProbe> probe_;
    std::unique_ptr<LinkProbe> bulk_;
    std::unique_ptr<MeasuringSession> session_;
};

// What every row pays: one row to the most servers, no work, nothing else on the wire.
const HopCase* plainest(const std::vector<HopCase>& cases) {
    const HopCase* found = nullptr;
    for (const HopCase& one : cases) {
        if (one.rows == 1 && !one.has_work && !one.has_bulk) found = &one;
    }
    return found;
}

Status check_sums(const std::vector<HopCase>& cases) {
    for (const HopCase& one : cases) {
        const double sum = one.sum_of_parts();
        // What is left for the wire is below nothing where a server's figures are wrong.
        const bool is_sane = one.usual.wire_us >= -kMostMissing * one.usual.total_us;
        if (is_sane && sum >= 1 - kMostMissing && sum <= 1 + kMostMissing) continue;
        return internal_error(
            fmt::format("with {} servers and {} rows the parts are {:.0f} % of the whole, expected "
                        "95 to 105, and "
                        "the wire {:.1f} us, expected 0 or more; "
                        "measure again with more --rounds on a machine that does nothing else",
                        one.fan_out, one.rows, 100 * sum, one.usual.wire_us));
    }
    return Status::ok();
}

}  // namespace

Status run_fabric_hop(const PodConfig& pod, const FabricOptions& options) {
    K3POD_ASSIGN(const ModelConfig config, measured_model(pod));
    const auto most =
        std::min<size_t>({pod.experts.size(), static_cast<size_t>(max_probe_servers(config.latent)),
                          static_cast<size_t>(config.moe_intermediate / kSliceMultiple)});
    Hop hop(pod, config, options.rounds);
    std::vector<HopCase> cases;
    for (const bool has_work : {false, true}) {
        for (const int32_t fan_out : kFanOuts) {
            if (std::cmp_greater(fan_out, most)) continue;
            K3POD_TRY(hop.measure(static_cast<size_t>(fan_out), has_work, cases));
        }
    }
    if (options.json) {
        fmt::print("{}\n", hop_json(cases).dump(2));
    } else {
        fmt::print("{}", hop_text(cases));
    }
    K3POD_TRY(check_sums(cases));
    const HopCase* plain = plainest(cases);
    if (plain == nullptr) return failed_precondition("the pod file has no [[expert]] to measure");
    return write_measured(
        {.round_trip_s = plain->total_us.p50 * 1e-6,
         .server_bits_per_s = {},
         .station_bits_per_s = {},
         .source = fmt::format("measured by k3pod fabric hop, {} servers", plain->fan_out)},
        options);
}

}  // namespace k3pod
