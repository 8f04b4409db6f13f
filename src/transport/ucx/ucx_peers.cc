// The endpoints of a UcxTransport: how they begin, fail and end.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "transport/ucx/address.h"
#include "transport/ucx/log_capture.h"
#include "transport/ucx/ucx_transport.h"

namespace k3pod::ucx {

Result<PeerId> UcxTransport::connect(std::span<const std::byte> address,
                                     const std::string& peer_name) {
    gate_.check();
    K3POD_ASSIGN(const UcxAddress remote, unwrap_address(kind_, address, peer_name));
    const std::lock_guard lock(mutex_);
    const PeerId id = next_peer_++;  // spent on failures too: UCX may still call back about them
    if (kind_ == TransportKind::kShm) {
        const Status watched = watch_.add(id, remote.process);
        if (!watched.is_ok()) return watched.with_context(peer_name + " cannot be reached");
    }
    auto peer = std::make_unique<Peer>(Peer{.id = id, .name = peer_name, .owner = this});
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(remote.worker.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = on_endpoint_error, .arg = peer.get()};
    const LogCapture capture;
    const ucs_status_t status = ucp_ep_create(worker_->handle(), &params, &peer->endpoint);
    if (status != UCS_OK) {
        watch_.forget(id);
        return unavailable(fmt::format("{} cannot be reached over {}: {}{}", peer_name,
                                       settings_.name, ucs_status_string(status),
                                       capture.clause()));
    }
    if (Status lanes = check_lanes(*peer); !lanes.is_ok()) {
        start_closing(std::move(peer));
        return lanes;
    }
    peers_.emplace(id, std::move(peer));
    return id;
}

Status UcxTransport::check_lanes(const Peer& peer) const {
    const std::vector<std::string> lanes = lanes_of(peer.endpoint);
    for (const std::string& lane : lanes) {
        if (std::ranges::find(settings_.lanes, lane) != settings_.lanes.end()) continue;
        return failed_precondition(fmt::format(
            "connection to {} uses {}, but {} is made of {}; check the device in the "
            "pod file",
            peer.name, fmt::join(lanes, ","), settings_.name, fmt::join(settings_.lanes, " or ")));
    }
    return Status::ok();
}

void UcxTransport::disconnect(PeerId peer) {
    gate_.check();
    const std::lock_guard lock(mutex_);
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return;
    start_closing(std::move(it->second));
    peers_.erase(it);
}

// Forced, always: an endpoint closed politely keeps 25 to 49 KiB per reconnect.
void UcxTransport::start_closing(std::unique_ptr<Peer> peer) {
    watch_.forget(peer->id);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    peer->close_request = ucp_ep_close_nbx(peer->endpoint, &param);
    closing_.push_back(std::move(peer));
}

void UcxTransport::advance_closings() {
    std::erase_if(closing_, [this](const std::unique_ptr<Peer>& peer) {
        if (UCS_PTR_IS_PTR(peer->close_request)) {
            if (ucp_request_check_status(peer->close_request) == UCS_INPROGRESS) return false;
            ucp_request_free(peer->close_request);
        }
        end_ops_of(peer->id);
        return true;
    });
}

// After a forced close UCX does not promise a callback for each send, but it reads no buffer any
// more.
void UcxTransport::end_ops_of(PeerId peer) {
    for (const auto& op : ops_) {
        if (op->peer == peer && op->num_requests > 0 && !op->has_ended) end_op(*op);
    }
}

void UcxTransport::on_endpoint_error(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
    auto* peer = static_cast<Peer*>(arg);
    peer->failure = ucs_status_string(status);
    peer->owner->failed_peers_.push_back(peer->id);
}

void UcxTransport::note_ended_processes() {
    for (const PeerId id : watch_.ended()) {
        const auto it = peers_.find(id);
        if (it == peers_.end()) continue;
        it->second->failure = "its process has ended";
        failed_peers_.push_back(id);
    }
}

void UcxTransport::report_failures(const std::string& ucx_said) {
    std::vector<PeerId> failed;
    failed.swap(failed_peers_);
    for (const PeerId id : failed) {
        const auto it = peers_.find(id);
        if (it == peers_.end()) continue;  // closed by us before UCX noticed
        std::unique_ptr<Peer> peer = std::move(it->second);
        peers_.erase(it);
        const Status why = unavailable(fmt::format("{} is gone over {}: {}{}", peer->name,
                                                   settings_.name, peer->failure, ucx_said));
        start_closing(std::move(peer));
        ++num_events_;
        handler_.on_peer_failed(id, why);
    }
}

}  // namespace k3pod::ucx
