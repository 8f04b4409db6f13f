#include "exchange/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exchange/pacer.h"
#include "k3pod/ops/elementwise.h"
#include "k3pod/wire/codec.h"

namespace k3pod::exchange {

constexpr const char* kStationHolder = "station";

Client::Client(const ExchangeOptions& options, const Placement& placement, HolderTable holders,
               FrameWork local, const Clock& clock, MetricsRegistry& metrics, PeerDown peer_down)
    : options_(options),
      holders_(std::move(holders)),
      local_(std::move(local)),
      clock_(clock),
      peer_down_(std::move(peer_down)),
      epoch_(placement.epoch),
      tick_(tick_of(options)),
      local_holder_(placement.holders.size()),
      plan_(options.limits, placement.holders.size()),
      latents_(latents_bytes(options.limits.max_rows)),
      owed_(placement.holders.size()),
      last_tick_(clock.now()),
      metrics_(metrics) {
    const int64_t floats = int64_t{options.limits.max_rows} * options.limits.latent;
    for (size_t h = 0; h < placement.holders.size(); ++h) {
        const bool is_local = placement.holders[h] == kStationHolder;
        const bool is_f32 = is_local || options.reply_f32;
        if (holders_.has_shards(h)) owed_[h].rows = HostBuffer(floats * (is_f32 ? 4 : 2));
        if (is_local) {
            local_holder_ = h;
            local_latents_ = HostBuffer(latents_bytes(options.limits.max_rows));
            peers_.push_back(nullptr);
        } else {
            peers_.push_back(std::make_unique<Peer>(placement.holders[h], static_cast<uint16_t>(h),
                                                    options.limits, clock.now(), metrics));
        }
    }
    parts_.reserve(placement.holders.size());
}

Client::~Client() {
    if (keeper_) keeper_->stop();
}

Status Client::start(const MakeTransport& make_transport) {
    K3POD_ASSIGN(transport_, make_transport(*this));
    address_ = transport_->local_address();
    keeper_ = std::make_unique<Keeper>(tick_, [this] { keep(); });
    return Status::ok();
}

// ---- the step thread ----

Status Client::dispatch(const RoutedRows& step) {
    const std::lock_guard drive(mutex_);
    close_exchange_locked();  // A layer that was dispatched and never combined is abandoned.
    Status done = open_exchange_locked(step);
    if (!done.is_ok()) close_exchange_locked();
    return done;
}

Status Client::open_exchange_locked(const RoutedRows& step) {
    K3POD_TRY(plan_.plan(step, holders_));
    K3POD_TRY(check_holders_locked());
    exchange_.wire_step = number_on_wire_locked(step.step, step.layer);
    exchange_.step = step.step;
    exchange_.layer = step.layer;
    exchange_.rows = step.rows;
    exchange_.is_open = true;
    ops::to_bf16(step.latents, as_span<Bf16>(latents_, std::ssize(step.latents)));
    for (const auto& peer : peers_) {
        if (peer && !plan_.rows(peer->index()).empty()) K3POD_TRY(send_frame_locked(*peer));
    }
    return Status::ok();
}

// A step and layer that was dispatched before gets a new number, or a late reply of the first time
// could answer the second.
uint64_t Client::number_on_wire_locked(uint64_t step, int32_t layer) {
    const uint64_t number = step + step_offset_;
    const bool is_new = std::pair(number, layer) > std::pair(exchange_.wire_step, exchange_.layer);
    if (is_new) return number;
    step_offset_ += exchange_.wire_step + 1 - number;
    return exchange_.wire_step + 1;
}

// Before anything is sent: nobody works for a layer that cannot be completed.
Status Client::check_holders_locked() const {
    for (const auto& peer : peers_) {
        if (!peer || peer->is_up() || plan_.rows(peer->index()).empty()) continue;
        if (can_hold_locked() && !is_gone_for_good_locked(*peer)) continue;
        return Status(Code::kUnavailable, peer->why_down().message());
    }
    return Status::ok();
}

Status Client::send_frame_locked(Peer& peer) {
    K3POD_ASSIGN(const auto slot, wait_for_slot_locked(peer));
    write_payload_locked(peer, *slot);
    OwedReply& owed = owed_[peer.index()];
    owed.slot = slot;
    owed.is_pending = true;
    owed.wants_resend = false;
    owed.trouble = Status::ok();
    owed.resend_after = options_.frame_deadline / 8;
    ++exchange_.num_pending;
    peer.metrics.rows.add(std::ssize(plan_.rows(peer.index())));
    peer.metrics.entries.add(std::ssize(plan_.entries(peer.index())));
    if (peer.is_up()) static_cast<void>(transmit_locked(peer));
    if (!peer.is_up()) hold_or_fail_locked(peer, peer.why_down());
    return exchange_.failure;
}

Result<SendSlot*> Client::wait_for_slot_locked(Peer& peer) {
    if (SendSlot* slot = peer.free_slot()) return slot;
    TimePoint deadline = clock_.now() + options_.frame_deadline;
    Pacer pacer(options_.wait);
    while (true) {
        const int num_events = transport_->progress();
        settle_locked();
        if (!peer.is_up() && !can_hold_locked()) {
            return Status(Code::kUnavailable, peer.why_down().message());
        }
        if (SendSlot* slot = peer.free_slot()) return slot;
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        check_time_locked(now);
        if (now >= deadline) {
            const Status stuck =
                deadline_exceeded(fmt::format("sends to {} did not complete within {:.2f} s",
                                              peer.name(), to_seconds(options_.frame_deadline)));
            // Closing the connection ends its sends, and the frame can be held.
            if (!peer.is_up() || !can_hold_locked()) return stuck;
            lose_peer_locked(peer, stuck);
            deadline = now + options_.frame_deadline;
        }
        pacer.pause(now, mutex_, *transport_, tick_);
    }
}

void Client::write_payload_locked(const Peer& peer, SendSlot& slot) {
    const auto rows = plan_.rows(peer.index());
    const auto entries = plan_.entries(peer.index());
    gather_rows(peer.index(), slot.payload.data());
    std::memcpy(slot.payload.data() + latents_bytes(std::ssize(rows)), entries.data(),
                entries.size_bytes());
    slot.payload_bytes = wire::request_payload_bytes(
        options_.limits.latent, static_cast<int32_t>(rows.size()), std::ssize(entries));

    wire::FrameHeader& header = slot.header;
    header = {};
    header.kind = wire::FrameKind::kRequest;
    header.epoch = epoch_;
    header.layer = static_cast<uint16_t>(exchange_.layer);
    header.rows = static_cast<uint16_t>(rows.size());
    header.step = exchange_.wire_step;
    header.entries = static_cast<uint32_t>(entries.size());
    header.payload_bytes = static_cast<uint32_t>(slot.payload_bytes);
    header.node = peer.index();
    if (options_.reply_f32) header.flags |= wire::kFlagReplyF32;
    if (options_.check_payload) {
        header.flags |= wire::kFlagPayloadChecked;
        header.payload_check =
            wire::payload_checksum({slot.payload.data(), static_cast<size_t>(slot.payload_bytes)});
    }
}

// Sends the frame as it lies in its slot: again, when it was sent before.
Status Client::transmit_locked(Peer& peer) {
    OwedReply& owed = owed_[peer.index()];
    owed.slot->header.session = peer.session();  // another one than before when the server was lost
    owed.sent_at = clock_.now();
    owed.slot->header.sent_ns = nanoseconds_of(owed.sent_at);
    wire::seal_header(owed.slot->header);
    Status sent = send_slot(*transport_, peer.id(), *owed.slot);
    if (!sent.is_ok()) {
        sent = sent.with_context(fmt::format("cannot send to {}", peer.name()));
        lose_peer_locked(peer, sent);
        return sent;
    }
    peer.metrics.sent_bytes.add(owed.slot->payload_bytes + int64_t{wire::kHeaderBytes});
    return Status::ok();
}

void Client::gather_rows(size_t holder, std::byte* to) const {
    const auto row_bytes = static_cast<size_t>(latents_bytes(1));
    for (const uint16_t row : plan_.rows(holder)) {
        std::memcpy(to, latents_.data() + row * row_bytes, row_bytes);
        to += row_bytes;
    }
}

Status Client::combine(std::span<float> out) {
    if (!exchange_.is_open) return failed_precondition("combine without a dispatched layer");
    const int64_t expected = int64_t{exchange_.rows} * options_.limits.latent;
    Status done = std::ssize(out) == expected
                      ? run_local()
                      : invalid_argument(fmt::format("combine: room for {} values, expected {}",
                                                     out.size(), expected));
    {
        const std::lock_guard drive(mutex_);
        if (done.is_ok()) done = wait_for_replies_locked();
        close_exchange_locked();
    }
    if (done.is_ok()) add_up(out);
    return done;
}

// The station's own shards, on the same bf16 latents as everywhere.
Status Client::run_local() {
    if (local_holder_ == peers_.size()) return Status::ok();
    const int64_t rows = std::ssize(plan_.rows(local_holder_));
    if (rows == 0) return Status::ok();
    const int64_t values = rows * options_.limits.latent;
    gather_rows(local_holder_, local_latents_.data());
    const Status done =
        local_(exchange_.layer, static_cast<int32_t>(rows), as_span<Bf16>(local_latents_, values),
               plan_.entries(local_holder_), as_span<float>(owed_[local_holder_].rows, values));
    return done.with_context("station's own experts");
}

Status Client::wait_for_replies_locked() {
    const TimePoint start = clock_.now();
    exchange_.is_waiting = true;
    exchange_.deadline = start + options_.frame_deadline;
    for (OwedReply& owed : owed_) {
        if (owed.trouble.is_ok()) owed.resend_at = start + owed.resend_after;
    }
    Pacer pacer(options_.wait);
    while (!is_complete_or_failed()) {
        const int num_events = transport_->progress();
        settle_locked();
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        check_time_locked(now);
        pacer.pause(now, mutex_, *transport_, tick_);
    }
    return exchange_.failure;
}

// What is still owed is abandoned: its reply will be late, its slot free when the send is over.
void Client::close_exchange_locked() {
    if (exchange_.is_held) end_hold_locked();
    exchange_.is_open = false;
    exchange_.is_waiting = false;
    exchange_.num_pending = 0;
    exchange_.failure = Status::ok();
    for (OwedReply& owed : owed_) owed.is_pending = false;
}

// In holder order, whoever answered first.
void Client::add_up(std::span<float> out) {
    parts_.clear();
    for (size_t h = 0; h < owed_.size(); ++h) {
        const auto rows = plan_.rows(h);
        if (rows.empty()) continue;
        const int64_t values = std::ssize(rows) * options_.limits.latent;
        ops::PartialRows part{.rows = rows};
        if (h == local_holder_ || options_.reply_f32) {
            part.f32 = as_span<float>(owed_[h].rows, values);
        } else {
            part.bf16 = as_span<Bf16>(owed_[h].rows, values);
        }
        parts_.push_back(part);
    }
    ops::combine(
        {.rows = exchange_.rows, .latent = options_.limits.latent, .parts = parts_, .out = out});
}

// ---- control's threads ----

Peer* Client::find_peer(const std::string& node) {
    const auto found = std::ranges::find_if(
        peers_, [&](const auto& peer) { return peer && peer->name() == node; });
    return found == peers_.end() ? nullptr : found->get();
}

Status Client::attach(const std::string& node, std::span<const std::byte> address,
                      uint64_t session) {
    Peer* peer = find_peer(node);
    if (peer == nullptr) {
        return invalid_argument(
            fmt::format("{} is no expert server of placement epoch {}", node, epoch_));
    }
    const Status replaced =
        unavailable(fmt::format("{} connected anew while a step waited for it", node));
    {
        const UrgentLock drive(mutex_);
        hold_or_fail_locked(*peer, replaced);
        peer->disconnect(*transport_, replaced, clock_.now());
        K3POD_TRY(peer->connect(*transport_, address, session, clock_.now()));
        owed_[peer->index()].resend_at = TimePoint::min();  // A held frame goes out at once.
    }
    transport_->wake();
    return Status::ok();
}

void Client::detach(const std::string& node, const Status& why) {
    Peer* peer = find_peer(node);
    if (peer == nullptr) return;
    {
        const UrgentLock drive(mutex_);
        hold_or_fail_locked(*peer, why);
        peer->disconnect(*transport_, why, clock_.now());
    }
    transport_->wake();  // A combine that sleeps has its answer now.
}

std::vector<std::string> Client::missing() const {
    std::vector<std::string> names;
    for (size_t h = 0; h < peers_.size(); ++h) {
        if (peers_[h] && holders_.has_shards(h) && !peers_[h]->is_up()) {
            names.push_back(peers_[h]->name());
        }
    }
    return names;
}

}  // namespace k3pod::exchange

namespace k3pod {

Result<std::unique_ptr<ExchangeClient>> ExchangeClient::create(
    const ExchangeOptions& options, const Placement& placement, const MakeTransport& make_transport,
    FrameWork local, const Clock& clock, MetricsRegistry& metrics, PeerDown peer_down) {
    K3POD_TRY(exchange::check_options(options));
    K3POD_ASSIGN(exchange::HolderTable holders,
                 exchange::HolderTable::build(placement, options.limits));
    for (size_t h = 0; h < placement.holders.size(); ++h) {
        const bool is_local = placement.holders[h] == exchange::kStationHolder;
        if (is_local && holders.has_shards(h) && !local) {
            return invalid_argument(
                "the placement gives the station shards, but it has loaded no experts; give it an "
                "expert budget");
        }
    }
    auto client =
        std::make_unique<exchange::Client>(options, placement, std::move(holders), std::move(local),
                                           clock, metrics, std::move(peer_down));
    K3POD_TRY(client->start(make_transport));
    return std::unique_ptr<ExchangeClient>(std::move(client));
}

Result<std::unique_ptr<ExchangeClient>> ExchangeClient::create(
    const ExchangeOptions& options, const Placement& placement, const MakeTransport& make_transport,
    ExpertRunner* local, const Clock& clock, MetricsRegistry& metrics, PeerDown peer_down) {
    FrameWork work;
    if (local != nullptr) {
        work = [local](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                       std::span<const wire::WireEntry> entries, std::span<float> out) {
            return local->run(layer, rows, latents, entries, out);
        };
    }
    return create(options, placement, make_transport, std::move(work), clock, metrics,
                  std::move(peer_down));
}

}  // namespace k3pod
