#include "bench/exchange/real_exchange.h"

#include <chrono>
#include <memory>
#include <string>

#include "bench/exchange/or_exit.h"
#include "bench/support/forked.h"
#include "k3pod/base/log.h"
#include "k3pod/exchange/exchange.h"

namespace k3pod::bench {
namespace {

constexpr int kExperts = 16;
constexpr int kWidth = 3072;
constexpr uint64_t kSession = 7;

ExchangeOptions options_of(const Plan& plan) {
    ExchangeOptions options;
    options.limits = {.latent = kLatent,
                      .num_layers = 1,
                      .num_experts = kExperts,
                      .top_k = kExperts,
                      .max_rows = 32};
    options.check_payload = plan.kind == TransportKind::kTcp;  // what the pod file's "auto" does
    return options;
}

std::string server_name(int index) {
    return "spark-" + std::to_string(index + 1);
}

// Every expert is cut over all servers, so each of them gets the row.
Placement sliced_placement(int num_servers) {
    Placement placement{
        .num_layers = 1, .num_experts = kExperts, .width = kWidth, .holders = {}, .slices = {}};
    std::vector<PlacedSlice> slices;
    for (int i = 0; i < num_servers; ++i) {
        placement.holders.push_back(server_name(i));
        slices.push_back({kWidth * i / num_servers, kWidth * (i + 1) / num_servers, i});
    }
    placement.slices.assign(kExperts, slices);
    return placement;
}

MakeTransport ucx_of(const Plan& plan) {
    return [kind = plan.kind](TransportHandler& handler) {
        return make_ucx_transport({.kind = kind}, handler);
    };
}

Status no_work(int32_t /*layer*/, int32_t /*rows*/, std::span<const Bf16> /*latents*/,
               std::span<const wire::WireEntry> /*entries*/, std::span<float> /*out*/) {
    return Status::ok();
}

void run_server(const Plan& plan, int index, Line& line) {
    const SteadyClock clock;
    MetricsRegistry metrics;
    const auto server =
        value_or_exit(ExchangeServer::create(options_of(plan), ucx_of(plan), clock, metrics));
    Assignment assignment;
    assignment.session = kSession + static_cast<uint64_t>(index);
    assignment.epoch = 1;
    assignment.node_index = static_cast<uint16_t>(index);
    assignment.max_rows = options_of(plan).limits.max_rows;
    assignment.station_address = line.receive<std::byte>();
    ok_or_exit(server->open_session(assignment, no_work));
    line.send(server->local_address());
    line.receive<std::byte>();  // never comes: the process is killed when all is measured
}

void run_station(const Plan& plan, Line& line) {
    const SteadyClock clock;
    MetricsRegistry metrics;
    const auto station = value_or_exit(ExchangeClient::create(
        options_of(plan), sliced_placement(plan.num_servers), ucx_of(plan), FrameWork(), clock,
        metrics, [](const std::string&, const Status&) {}));  // combine() tells it as well
    line.send(station->local_address());
    for (int i = 0; i < plan.num_servers; ++i) {
        ok_or_exit(station->attach(server_name(i), line.receive<std::byte>(),
                                   kSession + static_cast<uint64_t>(i)));
    }
    const std::vector<float> latents(kLatent, 0.5f);
    const std::vector<float> weights(kExperts, 1.0f / kExperts);
    std::vector<uint16_t> experts;
    for (uint16_t expert = 0; expert < kExperts; ++expert) experts.push_back(expert);
    std::vector<float> out(kLatent);
    RoutedRows rows{.step = 0,
                    .layer = 0,
                    .rows = 1,
                    .latent = kLatent,
                    .top_k = kExperts,
                    .latents = latents,
                    .experts = experts,
                    .weights = weights};
    const auto exchange = [&] {
        const auto start = std::chrono::steady_clock::now();
        ++rows.step;
        ok_or_exit(station->dispatch(rows));
        ok_or_exit(station->combine(out));
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - start;
        return took.count();
    };
    std::vector<double> samples(static_cast<size_t>(plan.rounds));
    for (int run = 0; run < plan.num_runs; ++run) {
        for (int i = 0; i < plan.rounds / 4; ++i) exchange();
        for (double& sample : samples) sample = exchange();
        const Percentiles percentiles = percentiles_of(samples);
        line.send(&percentiles, sizeof(percentiles));
    }
    line.receive<std::byte>();
}

}  // namespace

std::vector<Percentiles> measure_exchange(const Plan& plan) {
    log::init("bench_exchange", log::Level::kError);  // they see each other killed at the end
    Forked station([&](Line& line) { run_station(plan, line); });
    const auto station_address = station.line().receive<std::byte>();
    std::vector<std::unique_ptr<Forked>> servers;
    for (int i = 0; i < plan.num_servers; ++i) {
        servers.push_back(
            std::make_unique<Forked>([&, i](Line& line) { run_server(plan, i, line); }));
        servers.back()->line().send(station_address);
        station.line().send(servers.back()->line().receive<std::byte>());
    }
    std::vector<Percentiles> runs;
    for (int i = 0; i < plan.num_runs; ++i) {
        runs.push_back(station.line().receive<Percentiles>().front());
    }
    return runs;
}

}  // namespace k3pod::bench
