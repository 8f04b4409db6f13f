#include "bench/exchange/row_exchange.h"

#include <chrono>
#include <numeric>

#include "bench/support/or_exit.h"

namespace k3pod::bench {
namespace {

constexpr int kExperts = 16;
constexpr int kWidth = 3072;
constexpr uint64_t kSession = 7;

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

}  // namespace

ExchangeOptions exchange_options(const Plan& plan) {
    ExchangeOptions options;
    options.limits = {.latent = kLatent,
                      .num_layers = 1,
                      .num_experts = kExperts,
                      .top_k = kExperts,
                      .max_rows = 32};
    options.check_payload = plan.kind == TransportKind::kTcp;  // what the pod file's "auto" does
    return options;
}

uint64_t session_of(int server) {
    return kSession + static_cast<uint64_t>(server);
}

RowExchange::RowExchange(const Plan& plan, const MakeTransport& make_transport)
    : plan_(plan),
      client_(value_or_exit(ExchangeClient::create(
          exchange_options(plan), sliced_placement(plan.num_servers), make_transport, FrameWork(),
          clock_, metrics_, [](const std::string&, const Status&) {}))),  // combine() tells it too
      latents_(kLatent, 0.5f),
      weights_(kExperts, 1.0f / kExperts),
      out_(kLatent),
      experts_(kExperts),
      rows_{.step = 0,
            .layer = 0,
            .rows = 1,
            .latent = kLatent,
            .top_k = kExperts,
            .latents = latents_,
            .experts = experts_,
            .weights = weights_} {
    std::iota(experts_.begin(), experts_.end(), uint16_t{0});
}

void RowExchange::attach(std::span<const std::byte> address) {
    ok_or_exit(client_->attach(server_name(num_attached_), address, session_of(num_attached_)));
    ++num_attached_;
}

void RowExchange::measure(const std::function<void(const Percentiles&)>& use) {
    std::vector<double> samples(static_cast<size_t>(plan_.rounds));
    for (int run = 0; run < plan_.num_runs; ++run) {
        for (int i = 0; i < plan_.rounds / 4; ++i) exchange();
        for (double& sample : samples) sample = exchange();
        use(percentiles_of(samples));
    }
}

double RowExchange::exchange() {
    const auto start = std::chrono::steady_clock::now();
    ++rows_.step;
    ok_or_exit(client_->dispatch(rows_));
    ok_or_exit(client_->combine(out_));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count();
}

}  // namespace k3pod::bench
