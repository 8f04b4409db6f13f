#include "node_exchange.h"

#include <utility>

#include "model_folder.h"

namespace k3pod {

Status NodeExchange::prepare(const ModelConfig& config) {
    const ExchangeOptions options = make_exchange_options(pod_, config);
    const std::lock_guard lock(mutex_);
    if (server_ && options.limits == limits_) return Status::ok();
    server_.reset();
    K3POD_ASSIGN(server_,
                 ExchangeServer::create(options, make_transport_factory(pod_, node_.device), clock_,
                                        metrics_));
    limits_ = options.limits;
    return Status::ok();
}

std::shared_ptr<ExchangeServer> NodeExchange::server() const {
    const std::lock_guard lock(mutex_);
    return server_;
}

Status NodeExchange::open_session(const Assignment& assignment, FrameWork work) {
    return server()->open_session(assignment, std::move(work));
}

void NodeExchange::close_session(uint64_t session) {
    if (const auto server = this->server()) server->close_session(session);
}

std::vector<std::byte> NodeExchange::local_address() const {
    return server()->local_address();
}

uint64_t NodeExchange::num_frames() const {
    const auto server = this->server();
    return server ? server->num_frames() : 0;
}

}  // namespace k3pod
