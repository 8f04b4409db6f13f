#pragma once
// The station's end of the exchange: one row of 7 KiB that every server has shards for.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/exchange/plan.h"
#include "k3pod/exchange/exchange.h"

namespace k3pod::bench {

ExchangeOptions exchange_options(const Plan& plan);
uint64_t session_of(int server);

class RowExchange {
  public:
    RowExchange(const Plan& plan, const MakeTransport& make_transport);
    RowExchange(const RowExchange&) = delete;
    RowExchange& operator=(const RowExchange&) = delete;

    std::vector<std::byte> local_address() const { return client_->local_address(); }
    // In the order of the servers' numbers.
    void attach(std::span<const std::byte> address);
    // Runs of plan.rounds exchanges each; `use` gets the percentiles of one, in microseconds.
    void measure(const std::function<void(const Percentiles&)>& use);

  private:
    double exchange();

    const Plan plan_;
    const SteadyClock clock_;
    MetricsRegistry metrics_;
    std::unique_ptr<ExchangeClient> client_;
    int num_attached_ = 0;
    std::vector<float> latents_, weights_, out_;
    std::vector<uint16_t> experts_;
    RoutedRows rows_;
};

}  // namespace k3pod::bench
