// What the transport brings to the station. Runs inside progress(), under the drive mutex, and may
// not use the transport: what has to be sent or closed is noted for settle_locked().

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "exchange/client.h"
#include "k3pod/wire/codec.h"

namespace k3pod::exchange {

// A peer that finds every frame bad would be asked as fast as it answers.
constexpr int kMaxAttempts = 10;

void Client::on_message(std::span<const std::byte> header_bytes,
                        std::span<const std::byte> payload) {
    const Result<wire::FrameHeader> header = wire::decode_header(header_bytes);
    if (!header.is_ok()) return metrics_.drop(ReplyDrop::kCorrupt);
    const bool is_known = header->node < peers_.size() && peers_[header->node];
    if (!is_known) return metrics_.drop(ReplyDrop::kForeign);
    Peer& peer = *peers_[header->node];
    if (!peer.is_up() || header->session != peer.session()) {
        return metrics_.drop(ReplyDrop::kSession);
    }
    peer.hear();
    switch (header->kind) {
        case wire::FrameKind::kReply:
        case wire::FrameKind::kRefuse:
            return on_answer(peer, *header, payload);
        case wire::FrameKind::kHeartbeatReply:
            return;
        case wire::FrameKind::kRequest:
        case wire::FrameKind::kHeartbeat:
        case wire::FrameKind::kBulkChunk:
        case wire::FrameKind::kBulkAck:
            return metrics_.drop(ReplyDrop::kForeign);
    }
}

// The transport's reason names the peer.
void Client::on_peer_failed(PeerId id, const Status& why) {
    for (const auto& peer : peers_) {
        if (peer && peer->is_up() && peer->id() == id) {
            failed_peers_.emplace_back(peer.get(), why);
            wants_settling_ = true;
        }
    }
}

void Client::on_answer(Peer& peer, const wire::FrameHeader& header,
                       std::span<const std::byte> payload) {
    if (!is_owed(peer, header)) return;
    OwedReply& owed = owed_[peer.index()];
    const bool has_rows = header.status == wire::FrameStatus::kOk;
    const bool is_f32 = (header.flags & wire::kFlagReplyF32) != 0;
    const bool is_sound =
        wire::check_reply(header, payload, options_.limits).is_ok() &&
        (!has_rows || (header.kind == wire::FrameKind::kReply &&
                       header.rows == owed.slot->header.rows && is_f32 == options_.reply_f32));
    if (!is_sound) {
        metrics_.drop(ReplyDrop::kCorrupt);
        ask_again(peer, "was damaged on its way");
    } else if (has_rows) {
        take_rows(peer, payload);
    } else {
        take_refusal(peer, header.status);
    }
}

// Whether this answers what the peer owes now. The attempt does not matter: all attempts carry the
// same bytes, so the answer to an earlier one is as good.
bool Client::is_owed(const Peer& peer, const wire::FrameHeader& header) {
    if (header.epoch != epoch_) {
        metrics_.drop(ReplyDrop::kEpoch);
    } else if (header.step != exchange_.wire_step || header.layer != exchange_.layer ||
               !exchange_.is_open) {
        metrics_.drop(ReplyDrop::kLate);
    } else if (!owed_[peer.index()].is_pending) {
        metrics_.drop(ReplyDrop::kDuplicate);
    } else {
        return true;
    }
    return false;
}

void Client::take_rows(Peer& peer, std::span<const std::byte> payload) {
    OwedReply& owed = owed_[peer.index()];
    std::memcpy(owed.rows.data(), payload.data(), payload.size());
    owed.is_pending = false;
    --exchange_.num_pending;
    if (exchange_.is_held) show_hold_locked();
    peer.metrics.seconds.observe(to_seconds(clock_.now() - owed.sent_at));
    peer.metrics.received_bytes.add(std::ssize(payload) + int64_t{wire::kHeaderBytes});
}

void Client::take_refusal(Peer& peer, wire::FrameStatus status) {
    const std::string what = fmt::format("is '{}'", wire::status_name(status));
    switch (status) {
        case wire::FrameStatus::kBadFrame:
        case wire::FrameStatus::kBusy:
            return ask_again(peer, what);
        case wire::FrameStatus::kOk:
        case wire::FrameStatus::kFault:
            return hold_or_fail_locked(peer, useless_answer(peer, what));
        case wire::FrameStatus::kWrongEpoch:
        case wire::FrameStatus::kNotMyShard:
            // The peer serves another placement; only a new session can mend that.
            failed_peers_.emplace_back(&peer, useless_answer(peer, what));
            wants_settling_ = true;
    }
}

// The request or its answer was hurt, or came at a bad moment: another attempt may fare better.
void Client::ask_again(Peer& peer, const std::string& what) {
    OwedReply& owed = owed_[peer.index()];
    if (owed.slot->header.attempt + 1 >= kMaxAttempts) {
        return hold_or_fail_locked(peer, useless_answer(peer, what));
    }
    owed.wants_resend = wants_settling_ = true;
}

Status Client::useless_answer(const Peer& peer, const std::string& what) const {
    return unavailable(fmt::format("{}'s answer to layer {} of step {} (epoch {}) {}", peer.name(),
                                   exchange_.layer, exchange_.step, epoch_, what));
}

}  // namespace k3pod::exchange
