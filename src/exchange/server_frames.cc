// What the transport brings to an expert server, and what is answered. The handler runs inside
// progress() and may not use the transport: short answers are noted for settle_locked().

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exchange/server.h"
#include "k3pod/base/log.h"
#include "k3pod/wire/codec.h"

namespace k3pod::exchange {
namespace {

bool is_same_exchange(const wire::FrameHeader& a, const wire::FrameHeader& b) {
    return a.session == b.session && a.step == b.step && a.layer == b.layer;
}

// Step and layer only grow within a session.
bool is_older(const wire::FrameHeader& a, const wire::FrameHeader& b) {
    return std::pair(a.step, a.layer) < std::pair(b.step, b.layer);
}

// The answer to a frame before it has rows: the same identity, nothing behind it.
wire::FrameHeader make_answer(const wire::FrameHeader& request, wire::FrameKind kind,
                              wire::FrameStatus status) {
    wire::FrameHeader answer = request;
    answer.kind = kind;
    answer.status = status;
    answer.flags = static_cast<uint16_t>(request.flags & ~wire::kFlagPayloadChecked);
    answer.payload_bytes = 0;
    answer.payload_check = 0;
    return answer;
}

wire::FrameStatus status_of(const Status& done) {
    if (done.is_ok()) return wire::FrameStatus::kOk;
    return done.code() == Code::kNotFound ? wire::FrameStatus::kNotMyShard
                                          : wire::FrameStatus::kFault;
}

}  // namespace

void Server::on_message(std::span<const std::byte> header_bytes,
                        std::span<const std::byte> payload) {
    const Result<wire::FrameHeader> header = wire::decode_header(header_bytes);
    if (!header.is_ok()) return metrics_.drop(FrameDrop::kCorrupt);
    if (!session_ || header->session != session_->id) return metrics_.drop(FrameDrop::kSession);
    was_station_heard_ = true;
    switch (header->kind) {
        case wire::FrameKind::kRequest:
            return on_request(*header, payload);
        case wire::FrameKind::kHeartbeat:
            return note(
                make_answer(*header, wire::FrameKind::kHeartbeatReply, wire::FrameStatus::kOk));
        case wire::FrameKind::kReply:
        case wire::FrameKind::kRefuse:
        case wire::FrameKind::kHeartbeatReply:
        case wire::FrameKind::kBulkChunk:
        case wire::FrameKind::kBulkAck:
            return metrics_.drop(FrameDrop::kForeign);
    }
}

void Server::on_peer_failed(PeerId peer, const Status& why) {
    if (!session_ || peer != station_) return;
    is_station_lost_ = true;
    log::warning(fmt::format("lost the data plane to the station: {}", why.message()));
}

void Server::on_request(const wire::FrameHeader& header, std::span<const std::byte> payload) {
    if (header.epoch != session_->epoch) {
        return refuse(header, wire::FrameStatus::kWrongEpoch,
                      invalid_argument(fmt::format("epoch is {}, this session serves {}",
                                                   header.epoch, session_->epoch)));
    }
    if (header.node != session_->node) {
        return refuse(header, wire::FrameStatus::kBadFrame,
                      invalid_argument(fmt::format("node is {}, this session is {}", header.node,
                                                   session_->node)));
    }
    if (const Status sound = wire::check_request(header, payload, session_->limits);
        !sound.is_ok()) {
        return refuse(header, wire::FrameStatus::kBadFrame, sound);
    }
    if (is_repeat(header)) return metrics_.drop(FrameDrop::kDuplicate);
    if (arriving_->is_full) {
        metrics_.drop(FrameDrop::kSuperseded);
        if (is_older(header, arriving_->header)) return;
    }
    arriving_->header = header;
    std::memcpy(arriving_->payload.data(), payload.data(), payload.size());
    arriving_->is_full = true;
}

// A frame that waits or is in work already only takes the number of the new attempt. One that was
// answered is worked on again: its reply may be what got lost.
bool Server::is_repeat(const wire::FrameHeader& header) {
    for (Request* request : {working_, arriving_}) {
        if (!request->is_full || !is_same_exchange(request->header, header)) continue;
        if (request->header.attempt < header.attempt) {
            request->header.attempt = header.attempt;
            request->header.sent_ns = header.sent_ns;
        }
        return true;
    }
    return false;
}

void Server::refuse(const wire::FrameHeader& header, wire::FrameStatus why, const Status& detail) {
    count_refusal(why, detail);
    note(make_answer(header, wire::FrameKind::kRefuse, why));
}

void Server::count_refusal(wire::FrameStatus why, const Status& detail) {
    metrics_.refuse(why);
    if (std::exchange(was_refusal_logged_, true)) return;
    log::warning(
        fmt::format("answered a frame of the station with '{}': {}; further ones of this "
                    "session are only counted",
                    wire::status_name(why), detail.message()));
}

void Server::note(const wire::FrameHeader& header) {
    for (SendSlot& slot : notes_) {
        const bool is_waiting = std::ranges::find(unsent_notes_, &slot) != unsent_notes_.end();
        if (slot.sends_in_flight > 0 || is_waiting) continue;
        slot.header = header;
        unsent_notes_.push_back(&slot);
        return;
    }
    metrics_.drop(FrameDrop::kBusy);
}

void Server::settle_locked() {
    for (SendSlot* slot : unsent_notes_) {
        if (!session_ || slot->header.session != session_->id) continue;
        wire::seal_header(slot->header);
        // When the station is gone there is nobody to answer.
        static_cast<void>(send_slot(*transport_, station_, *slot));
    }
    unsent_notes_.clear();
}

void Server::answer_locked(SendSlot& reply, const Status& done) {
    const wire::FrameHeader& request = working_->header;
    const wire::FrameStatus status = status_of(done);
    reply.header = make_answer(request, wire::FrameKind::kReply, status);
    reply.payload_bytes = 0;
    if (done.is_ok()) {
        const bool is_f32 = (request.flags & wire::kFlagReplyF32) != 0;
        reply.payload_bytes =
            wire::reply_payload_bytes(options_.limits.latent, request.rows, is_f32);
        reply.header.payload_bytes = static_cast<uint32_t>(reply.payload_bytes);
        if ((request.flags & wire::kFlagPayloadChecked) != 0) {
            reply.header.flags |= wire::kFlagPayloadChecked;
            reply.header.payload_check = wire::payload_checksum(
                {reply.payload.data(), static_cast<size_t>(reply.payload_bytes)});
        }
        metrics_.frames.add();
        metrics_.rows.add(request.rows);
        metrics_.entries[request.layer].add(request.entries);
        ++num_frames_;
    } else {
        count_refusal(status, done);
    }
    wire::seal_header(reply.header);
    static_cast<void>(send_slot(*transport_, station_, reply));
}

}  // namespace k3pod::exchange
