#include "bench/exchange/real_exchange.h"

#include <memory>

#include "bench/exchange/row_exchange.h"
#include "bench/support/forked.h"
#include "bench/support/or_exit.h"
#include "k3pod/base/log.h"

namespace k3pod::bench {
namespace {

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
    const ExchangeOptions options = exchange_options(plan);
    const auto server =
        value_or_exit(ExchangeServer::create(options, ucx_of(plan), clock, metrics));
    Assignment assignment;
    assignment.session = session_of(index);
    assignment.epoch = 1;
    assignment.node_index = static_cast<uint16_t>(index);
    assignment.max_rows = options.limits.max_rows;
    assignment.station_address = line.receive<std::byte>();
    ok_or_exit(server->open_session(assignment, no_work));
    line.send(server->local_address());
    line.receive<std::byte>();  // never comes: the process is killed when all is measured
}

void run_station(const Plan& plan, Line& line) {
    RowExchange station(plan, ucx_of(plan));
    line.send(station.local_address());
    for (int i = 0; i < plan.num_servers; ++i) station.attach(line.receive<std::byte>());
    station.measure([&](const Percentiles& run) { line.send(&run, sizeof(run)); });
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
