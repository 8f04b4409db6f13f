#include "tests/support/exchange_pod.h"

#include <algorithm>
#include <chrono>

namespace k3pod::testing {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

ExchangePod::ExchangePod(const ExchangePodOptions& options)
    : options_(options), placement_(fake_placement(options.holders, options.is_sliced)) {
    FrameWork local;
    for (size_t h = 0; h < options.holders.size(); ++h) {
        if (options.holders[h] == "station") local = work_of(h);
    }
    auto client = ExchangeClient::create(options_.exchange, placement_, transport_of("station"),
                                         std::move(local), clock_, registries_["station"],
                                         [this](const std::string& node, const Status& why) {
                                             const std::lock_guard lock(mutex_);
                                             down_[node] = why;
                                             changed_.notify_all();
                                         });
    if (!client.is_ok()) {
        status_ = client.status();
        return;
    }
    client_ = std::move(*client);
    for (const std::string& holder : options.holders) {
        if (holder == "station" || !status_.is_ok()) continue;
        status_ = start(holder);
        if (status_.is_ok()) status_ = attach(holder);
    }
}

ExchangePod::~ExchangePod() {
    client_.reset();
    servers_.clear();
}

Status ExchangePod::start(const std::string& node) {
    const auto holder = static_cast<size_t>(std::ranges::find(placement_.holders, node) -
                                            placement_.holders.begin());
    auto server =
        ExchangeServer::create(options_.exchange, transport_of(node), clock_, registries_[node]);
    if (!server.is_ok()) return server.status();
    Assignment assignment;
    assignment.session = sessions_[node] = next_session_++;
    assignment.epoch = placement_.epoch;
    assignment.node_index = static_cast<uint16_t>(holder);
    assignment.max_rows = options_.exchange.limits.max_rows;
    assignment.station_address = client_->local_address();
    servers_[node] = std::move(*server);
    return servers_[node]->open_session(assignment, work_of(holder));
}

Status ExchangePod::attach(const std::string& node) {
    return client_->attach(node, server(node).local_address(), sessions_.at(node));
}

Result<std::vector<float>> ExchangePod::run(const FakeStep& step) {
    std::vector<float> out(step.latents.size());
    K3POD_TRY(client_->dispatch(step.rows()));
    K3POD_TRY(client_->combine(out));
    return out;
}

Status ExchangePod::wait_for_down(const std::string& node) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return down_.contains(node); });
    return down_[node];
}

double ExchangePod::station_metric(const std::string& name, const Labels& labels) {
    return registries_["station"].counter(name, "", labels).value();
}

MakeTransport ExchangePod::transport_of(const std::string& node) {
    if (options_.transport) return options_.transport(node);
    return [network = network_](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
        return make_loopback_transport(network, handler);
    };
}

FrameWork ExchangePod::work_of(size_t holder) {
    return options_.work ? options_.work(placement_, holder) : fake_experts(placement_, holder);
}

}  // namespace k3pod::testing
