#include "exchange/stage_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exchange/pacer.h"

namespace k3pod::exchange {
namespace {

constexpr Nanoseconds kTick = std::chrono::milliseconds(20);
constexpr Nanoseconds kFlushLimit = std::chrono::seconds(1);

}  // namespace

Receiver::Receiver(WaitPolicy wait, const Clock& clock, MetricsRegistry& metrics)
    : wait_(wait),
      clock_(clock),
      received_bytes_(metrics.counter("k3pod_stage_received_bytes_total",
                                      "Bytes of packed shards received and found right")),
      damaged_(metrics.counter("k3pod_stage_damaged_chunks_total",
                               "Chunks whose hash was wrong; they are asked for again")),
      dropped_(metrics.counter("k3pod_stage_dropped_total",
                               "Staging messages that were damaged or of no open session")) {}

Status Receiver::start(const MakeTransport& make_transport) {
    K3POD_ASSIGN(transport_, make_transport(*this));
    address_ = transport_->local_address();
    return Status::ok();
}

Status Receiver::receive(const Session& session, StagedLoad& load) {
    const std::lock_guard drive(mutex_);
    // The connection of an earlier session: kept until now, so that its last words could arrive.
    if (station_ != kNoPeer) transport_->disconnect(std::exchange(station_, kNoPeer));
    incoming_.clear();
    arrived_.clear();
    same_.clear();
    answers_.clear();
    is_opened_ = false;
    failure_ = Status::ok();
    session_ = session.id;
    load_ = &load;
    const auto station = transport_->connect(session.station, "station");
    Status status = station.status();
    if (station) {
        station_ = *station;
        session.is_listening();
        status = drive_until_complete(session);
        flush();
    }
    load_ = nullptr;
    incoming_.clear();
    return status;
}

Status Receiver::drive_until_complete(const Session& session) {
    Pacer pacer(wait_);
    TimePoint next_question{};
    while (!load_->is_complete()) {
        const int num_events = transport_->progress();
        K3POD_TRY(failure_);
        K3POD_TRY(finish_arrived(session));
        K3POD_TRY(say_what_is_noted());
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        if (now >= next_question) {
            next_question = now + kTick;
            if (!session.goes_on())
                return cancelled("the session ended while shards were received");
        }
        pacer.pause(now, mutex_, *transport_, kTick);
    }
    return Status::ok();
}

// Outside of the handler: a shard may go to the disk here.
Status Receiver::finish_arrived(const Session& session) {
    for (const uint32_t shard : std::exchange(arrived_, {})) {
        const auto found = incoming_.find(shard);
        if (found == incoming_.end()) continue;
        K3POD_TRY(load_->finish(shard, found->second.hash));
        incoming_.erase(found);
        answers_.push_back({.kind = wire::StageKind::kAck, .shard = shard});
        session.has_shard(shard);
    }
    for (const uint32_t shard : std::exchange(same_, {})) {
        K3POD_TRY(load_->confirm(shard));
        answers_.push_back({.kind = wire::StageKind::kAck, .shard = shard});
        session.has_shard(shard);
    }
    return Status::ok();
}

Status Receiver::say_what_is_noted() {
    if (std::exchange(is_opened_, false)) {
        const std::vector<wire::StageAsk> asks = load_->missing();
        const auto list = std::as_bytes(std::span(asks));
        K3POD_TRY(post({.kind = wire::StageKind::kAsk, .chunk_hash = chunk_hash(list)}, list));
    }
    for (const wire::StageHeader& answer : std::exchange(answers_, {})) K3POD_TRY(post(answer, {}));
    return Status::ok();
}

// A link that has failed is not an error here: the station notices it as well and opens another
// session.
Status Receiver::post(const wire::StageHeader& header, std::span<const std::byte> payload) {
    const auto is_free = [](const Slot& slot) { return !slot.is_in_flight; };
    auto slot = std::ranges::find_if(slots_, is_free);
    if (slot == slots_.end()) slot = slots_.emplace(slots_.end());
    slot->header = header;
    slot->header.session = session_;
    slot->header.payload_bytes = static_cast<uint32_t>(payload.size());
    wire::seal_header(slot->header);
    slot->payload.assign(payload.begin(), payload.end());
    if (std::ssize(payload) > transport_->max_message_bytes()) {
        return resource_exhausted(
            fmt::format("the list of missing shards has {} bytes, a message has up to {}; give "
                        "this node fewer, wider shards",
                        payload.size(), transport_->max_message_bytes()));
    }
    const Status sent = transport_->send(station_, std::as_bytes(std::span(&slot->header, 1)),
                                         slot->payload, reinterpret_cast<uint64_t>(&*slot));
    slot->is_in_flight = sent.is_ok();
    return Status::ok();
}

void Receiver::flush() {
    const TimePoint deadline = clock_.now() + kFlushLimit;
    (void)say_what_is_noted();
    while (std::ranges::any_of(slots_, [](const Slot& slot) { return slot.is_in_flight; }) &&
           clock_.now() < deadline) {
        if (transport_->progress() == 0) sched_yield();
    }
}

// ---- inside the transport: nothing is sent from here ----

void Receiver::on_message(std::span<const std::byte> bytes, std::span<const std::byte> payload) {
    const auto header = wire::decode_stage_header(bytes, payload);
    const bool is_ours =
        header && load_ != nullptr && header->session == session_ &&
        (header->kind == wire::StageKind::kOpen || header->shard < load_->shards().size());
    if (!is_ours) return dropped_.add();
    switch (header->kind) {
        case wire::StageKind::kOpen:
            is_opened_ = true;
            return;
        case wire::StageKind::kChunk:
        case wire::StageKind::kSame:
            if (load_->has(header->shard)) {  // the acknowledgement was lost
                answers_.push_back({.kind = wire::StageKind::kAck, .shard = header->shard});
            } else if (header->kind == wire::StageKind::kSame) {
                if (!std::ranges::count(same_, header->shard)) same_.push_back(header->shard);
            } else if (const Status taken = take_chunk(*header, payload); !taken) {
                failure_ = taken;
            }
            return;
        case wire::StageKind::kAsk:
        case wire::StageKind::kAck:
        case wire::StageKind::kAgain:
            return dropped_.add();
    }
}

Status Receiver::take_chunk(const wire::StageHeader& header, std::span<const std::byte> payload) {
    K3POD_ASSIGN(Incoming* const shard, incoming(header));
    if (shard == nullptr) {
        dropped_.add();
        return Status::ok();
    }
    const auto chunk = static_cast<size_t>(header.offset / kShardChunkBytes);
    if (shard->has_chunk[chunk]) return Status::ok();
    const uint64_t found = chunk_hash(payload);
    if (found != header.chunk_hash) {
        damaged_.add();
        wire::StageHeader again = header;
        again.kind = wire::StageKind::kAgain;
        again.chunk_hash = found;
        answers_.push_back(again);
        return Status::ok();
    }
    std::memcpy(shard->room.data() + header.offset, payload.data(), payload.size());
    shard->chunk_hashes[chunk] = found;
    shard->has_chunk[chunk] = true;
    received_bytes_.add(static_cast<double>(payload.size()));
    if (++shard->num_chunks < std::ssize(shard->chunk_hashes)) return Status::ok();
    const uint64_t hash = shard_hash(shard->chunk_hashes);
    if (hash != shard->hash) {
        const Shard& named = load_->shards()[header.shard];
        return data_loss(
            fmt::format("layer {} expert {} columns [{}, {}) has hash {:016x}, the "
                        "station says {:016x}",
                        named.layer, named.expert, named.begin, named.end, hash, shard->hash));
    }
    arrived_.push_back(header.shard);
    return Status::ok();
}

// Null when the chunk does not fit its shard.
Result<Receiver::Incoming*> Receiver::incoming(const wire::StageHeader& header) {
    const auto bytes = static_cast<int64_t>(header.shard_bytes);
    const auto offset = static_cast<int64_t>(header.offset);
    const bool is_sane = bytes > 0 && offset >= 0 && offset < bytes &&
                         offset % kShardChunkBytes == 0 &&
                         header.payload_bytes == std::min(kShardChunkBytes, bytes - offset);
    if (!is_sane) return nullptr;
    const auto [found, is_new] = incoming_.try_emplace(header.shard);
    Incoming& shard = found->second;
    if (is_new) {
        K3POD_ASSIGN(shard.room, load_->room(header.shard, bytes));
        shard.hash = header.shard_hash;
        const auto num_chunks = static_cast<size_t>(num_shard_chunks(bytes));
        shard.chunk_hashes.resize(num_chunks);
        shard.has_chunk.resize(num_chunks);
    }
    const bool is_same = std::ssize(shard.room) == bytes && shard.hash == header.shard_hash;
    return is_same ? &shard : nullptr;
}

void Receiver::on_sent(uint64_t token) {
    reinterpret_cast<Slot*>(token)->is_in_flight = false;
}

void Receiver::on_peer_failed(PeerId, const Status&) {}

}  // namespace k3pod::exchange

namespace k3pod {

Result<std::unique_ptr<StageReceiver>> StageReceiver::create(WaitPolicy wait,
                                                             const MakeTransport& make_transport,
                                                             const Clock& clock,
                                                             MetricsRegistry& metrics) {
    auto receiver = std::make_unique<exchange::Receiver>(wait, clock, metrics);
    K3POD_TRY(receiver->start(make_transport));
    return std::unique_ptr<StageReceiver>(std::move(receiver));
}

}  // namespace k3pod
