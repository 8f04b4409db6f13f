#include "transport/ucx/ucx_transport.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "k3pod/base/log.h"
#include "k3pod/wire/frame.h"
#include "transport/ucx/address.h"
#include "transport/ucx/log_capture.h"

namespace k3pod::ucx {
namespace {

constexpr unsigned kWholeMessage = 1;  // active message ids
constexpr unsigned kPart = 2;
// A look at the watched processes is a system call of 0.2 us; this many polls are well under 1 ms.
constexpr int kPollsPerWatch = 2048;
constexpr auto kCloseDeadline = std::chrono::seconds(1);
// While an endpoint closes, progress() is what moves it, so nobody may sleep for long.
constexpr Nanoseconds kWaitWhileClosing = std::chrono::milliseconds(1);

std::span<const std::byte> bytes_of(const void* data, size_t num_bytes) {
    return {static_cast<const std::byte*>(data), num_bytes};
}

uint64_t random_sender_id() {
    std::random_device source;
    return uint64_t{source()} << 32 | source();
}

}  // namespace

// ---- start and end ----

Result<std::unique_ptr<Transport>> UcxTransport::create(const UcxOptions& options,
                                                        TransportHandler& handler) {
    K3POD_ASSIGN(std::unique_ptr<Worker> worker, Worker::create(options));
    std::unique_ptr<UcxTransport> transport(
        new UcxTransport(options.kind, std::move(worker), handler));
    K3POD_TRY(transport->open());
    return std::unique_ptr<Transport>(std::move(transport));
}

UcxTransport::UcxTransport(TransportKind kind, std::unique_ptr<Worker> worker,
                           TransportHandler& handler)
    : kind_(kind),
      settings_(settings_of(kind)),
      sender_id_(random_sender_id()),
      handler_(handler),
      worker_(std::move(worker)) {}

Status UcxTransport::open() {
    K3POD_TRY(wake_.open());
    K3POD_TRY(watch_.open());
    const std::pair<unsigned, ucp_am_recv_callback_t> callbacks[] = {{kWholeMessage, on_whole},
                                                                     {kPart, on_part}};
    for (const auto& [id, callback] : callbacks) {
        ucp_am_handler_param_t param{};
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                           UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        param.id = id;
        param.flags = UCP_AM_FLAG_WHOLE_MSG;
        param.cb = callback;
        param.arg = this;
        const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_->handle(), &param);
        if (status != UCS_OK) {
            return internal_error(fmt::format("{}: active message handler: {}", settings_.name,
                                              ucs_status_string(status)));
        }
    }
    K3POD_ASSIGN(const std::vector<std::byte> address, worker_->address());
    address_ = wrap_address(kind_, {.worker = address, .process = identity_of(getpid())});
    return Status::ok();
}

UcxTransport::~UcxTransport() {
    const std::lock_guard lock(mutex_);
    is_closing_down_ = true;
    for (auto& [id, peer] : peers_) start_closing(std::move(peer));
    const auto deadline = clock_.now() + kCloseDeadline;
    while (!closing_.empty() && clock_.now() < deadline) {
        ucp_worker_progress(worker_->handle());
        finish_sends();
        advance_closings();
    }
    // UCX may call back into this object for as long as the worker lives.
    worker_.reset();
}

// ---- sending ----

int64_t UcxTransport::max_message_bytes() const {
    return transport::kMaxMessageBytes;
}

Status UcxTransport::send(PeerId peer, std::span<const std::byte> header,
                          std::span<const std::byte> payload, uint64_t token) {
    gate_.check();
    const std::lock_guard lock(mutex_);
    const auto it = peers_.find(peer);
    if (it == peers_.end()) {
        return unavailable(fmt::format("{} peer {} is not connected", settings_.name, peer));
    }
    Peer& target = *it->second;
    K3POD_TRY(transport::check_message(header, payload, target.name));
    SendOp& op = take_op(peer, token);
    const bool is_whole = static_cast<int64_t>(payload.size()) <= settings_.fragment_bytes;
    const ucs_status_t status = is_whole ? post(op, target.endpoint, kWholeMessage, header, payload)
                                         : post_parts(op, target, header, payload);
    if (status != UCS_OK) on_endpoint_error(&target, target.endpoint, status);
    if (op.num_requests > 0) return Status::ok();  // on_send_done ends it
    free_ops_.push_back(&op);
    if (status == UCS_OK) {
        sent_tokens_.push_back(token);
        return Status::ok();
    }
    return unavailable(fmt::format("send to {} over {}: {}", target.name, settings_.name,
                                   ucs_status_string(status)));
}

UcxTransport::SendOp& UcxTransport::take_op(PeerId peer, uint64_t token) {
    if (free_ops_.empty()) {
        ops_.push_back(std::make_unique<SendOp>());
        free_ops_.push_back(ops_.back().get());
    }
    SendOp& op = *free_ops_.back();
    free_ops_.pop_back();
    op.owner = this;
    op.peer = peer;
    op.token = token;
    op.has_ended = false;
    return op;
}

ucs_status_t UcxTransport::post(SendOp& op, ucp_ep_h endpoint, unsigned am_id,
                                std::span<const std::byte> header,
                                std::span<const std::byte> payload) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                         UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = on_send_done;
    param.user_data = &op;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_ptr_t result = ucp_am_send_nbx(endpoint, am_id, header.data(), header.size(),
                                                    payload.data(), payload.size(), &param);
    if (UCS_PTR_IS_PTR(result)) ++op.num_requests;
    return UCS_PTR_IS_ERR(result) ? UCS_PTR_STATUS(result) : UCS_OK;
}

ucs_status_t UcxTransport::post_parts(SendOp& op, Peer& peer, std::span<const std::byte> header,
                                      std::span<const std::byte> payload) {
    const auto fragment = static_cast<size_t>(settings_.fragment_bytes);
    op.part_headers.resize((payload.size() + fragment - 1) / fragment);
    PartHeader part{.sender = sender_id_,
                    .stream = static_cast<uint32_t>(peer.id),
                    .message = peer.num_messages++,
                    .total = static_cast<uint32_t>(payload.size())};
    for (size_t i = 0; i < op.part_headers.size(); ++i) {
        part.offset = static_cast<uint32_t>(i * fragment);
        auto& bytes = op.part_headers[i];
        std::memcpy(bytes.data(), &part, sizeof(part));
        if (i == 0) std::memcpy(bytes.data() + sizeof(part), header.data(), header.size());
        const size_t header_bytes = i == 0 ? kFirstPartHeaderBytes : sizeof(part);
        const size_t payload_bytes = std::min(fragment, payload.size() - part.offset);
        const ucs_status_t status =
            post(op, peer.endpoint, kPart, std::span(bytes).first(header_bytes),
                 payload.subspan(part.offset, payload_bytes));
        if (status != UCS_OK) return status;
    }
    return UCS_OK;
}

void UcxTransport::on_send_done(void* request, ucs_status_t /*status*/, void* arg) {
    // A failed send is the endpoint's failure, which is reported by its own handler.
    auto* op = static_cast<SendOp*>(arg);
    op->owner->finished_sends_.push_back({op, request});
}

void UcxTransport::finish_sends() {
    for (const FinishedSend& finished : finished_sends_) {
        ucp_request_free(finished.request);
        SendOp& op = *finished.op;
        if (--op.num_requests > 0) continue;
        if (!op.has_ended) end_op(op);
        free_ops_.push_back(&op);
    }
    finished_sends_.clear();
}

void UcxTransport::end_op(SendOp& op) {
    op.has_ended = true;
    ++num_events_;
    if (!is_closing_down_) handler_.on_sent(op.token);
}

// ---- receiving ----

ucs_status_t UcxTransport::on_whole(void* arg, const void* header, size_t header_bytes, void* data,
                                    size_t data_bytes, const ucp_am_recv_param_t* param) {
    auto* self = static_cast<UcxTransport*>(arg);
    // Rendezvous is never sent by us: returning without fetching the data refuses it.
    const bool is_eager = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
    if (!is_eager || header_bytes != wire::kHeaderBytes || self->is_closing_down_) return UCS_OK;
    ++self->num_events_;
    self->handler_.on_message(bytes_of(header, header_bytes), bytes_of(data, data_bytes));
    return UCS_OK;
}

ucs_status_t UcxTransport::on_part(void* arg, const void* header, size_t header_bytes, void* data,
                                   size_t data_bytes, const ucp_am_recv_param_t* param) {
    auto* self = static_cast<UcxTransport*>(arg);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || self->is_closing_down_) {
        return UCS_OK;
    }
    ++self->num_events_;
    auto message =
        self->reassembly_.add(bytes_of(header, header_bytes), bytes_of(data, data_bytes));
    if (!message) {
        log::debug(message.status().message());
    } else if (message->has_value()) {
        self->handler_.on_message((*message)->header, (*message)->payload);
    }
    return UCS_OK;
}

// ---- driving and waiting ----

int UcxTransport::progress() {
    gate_.enter();
    const std::lock_guard lock(mutex_);
    const LogCapture capture;  // UCX's complaints belong to the failure that they explain.
    num_events_ = static_cast<int>(sent_tokens_.size());
    for (const uint64_t token : sent_tokens_) handler_.on_sent(token);
    sent_tokens_.clear();
    ucp_worker_progress(worker_->handle());
    finish_sends();
    if (--polls_until_watch_ < 0) {
        polls_until_watch_ = kPollsPerWatch;
        note_ended_processes();
    }
    if (!failed_peers_.empty()) {
        report_failures(capture.clause());
    } else if (capture.has_error()) {
        log::warning(fmt::format("{}: UCX said: {}", settings_.name, capture.text()));
    }
    if (!closing_.empty()) advance_closings();
    gate_.leave();
    return num_events_;
}

void UcxTransport::wait(Nanoseconds timeout) {
    {
        const std::lock_guard lock(mutex_);
        const bool has_work =
            !sent_tokens_.empty() || !finished_sends_.empty() || !failed_peers_.empty();
        if (has_work || ucp_worker_arm(worker_->handle()) != UCS_OK) return;
        if (!closing_.empty()) timeout = std::min(timeout, kWaitWhileClosing);
    }
    wake_.sleep(worker_->event_fd(), watch_.fd(), timeout);
    const std::lock_guard lock(mutex_);
    polls_until_watch_ = 0;  // it may be an ended process that ended the sleep
}

}  // namespace k3pod::ucx

namespace k3pod {

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options,
                                                      TransportHandler& handler) {
    return ucx::UcxTransport::create(options, handler);
}

std::string ucx_version() {
    Dl_info info{};
    const bool is_known = dladdr(reinterpret_cast<const void*>(&ucp_worker_progress), &info) != 0;
    return fmt::format("{} ({})", ucp_get_version_string(),
                       is_known && info.dli_fname != nullptr ? info.dli_fname : "unknown path");
}

}  // namespace k3pod
