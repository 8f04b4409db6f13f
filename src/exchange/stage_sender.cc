#include "exchange/stage_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exchange/pacer.h"
#include "k3pod/base/log.h"

namespace k3pod::exchange {
namespace {

constexpr int32_t kWindow = 32;  // messages to one node that the transport has and has not sent
constexpr Nanoseconds kTick = std::chrono::milliseconds(10);
constexpr Nanoseconds kOpenInterval = std::chrono::milliseconds(200);
constexpr Nanoseconds kFarewell = std::chrono::seconds(1);

std::string name_of(const Shard& shard) {
    return fmt::format("the shard of layer {} expert {} columns [{}, {})", shard.layer,
                       shard.expert, shard.begin, shard.end);
}

}  // namespace

Sender::Counters::Counters(MetricsRegistry& metrics, const std::string& node)
    : bytes(metrics.counter("k3pod_stage_sent_bytes_total",
                            "Bytes of packed shards sent, repeated ones included",
                            {{"node", node}})),
      sent_shards(metrics.counter("k3pod_stage_shards_total",
                                  "Shards that a server has confirmed to have from this station",
                                  {{"node", node}, {"way", "sent"}})),
      kept_shards(metrics.counter("k3pod_stage_shards_total",
                                  "Shards that a server has confirmed to have from this station",
                                  {{"node", node}, {"way", "kept"}})),
      repeated_chunks(metrics.counter("k3pod_stage_repeated_chunks_total",
                                      "Chunks sent again because they were lost or damaged",
                                      {{"node", node}})) {}

Sender::Sender(const StageOptions& options, const ShardSource& source, const Clock& clock,
               MetricsRegistry& metrics, StageFailed failed)
    : options_(options),
      clock_(clock),
      registry_(metrics),
      failed_(std::move(failed)),
      reader_(source, options.buffer_bytes, options.num_readers,
              [this] {
                  has_read_ = true;
                  if (transport_) transport_->wake();
              }),
      dropped_(metrics.counter("k3pod_stage_dropped_total",
                               "Staging messages that were damaged or of no open session")) {}

Sender::~Sender() {
    is_stopping_ = true;
    if (transport_) transport_->wake();
    if (thread_.joinable()) thread_.join();
    reader_.stop();  // its threads wake the transport
    while (!streams_.empty()) erase_locked(streams_.begin()->first);
    transport_.reset();  // its sends read from the slots
}

Status Sender::start(const MakeTransport& make_transport) {
    K3POD_ASSIGN(transport_, make_transport(*this));
    address_ = transport_->local_address();
    thread_ = std::thread([this] { run(); });
    return Status::ok();
}

// ---- streams: control's threads ----

void Sender::attach(const std::string& node, std::span<const std::byte> address, uint64_t session,
                    std::span<const Shard> shards) {
    const UrgentLock drive(mutex_);
    for (const auto& [id, stream] : streams_) {
        if (stream->node != node) continue;
        if (stream->session == session) return;
        erase_locked(id);
        break;
    }
    auto stream = std::make_unique<Stream>();
    stream->id = ++last_stream_;
    stream->node = node;
    stream->session = session;
    stream->shards.assign(shards.begin(), shards.end());
    stream->heard = stream->next_open = clock_.now();
    stream->counters = &counters_.try_emplace(node, registry_, node).first->second;
    const auto peer = transport_->connect(address, node);
    if (peer) {
        stream->peer = *peer;
    } else {
        failures_.emplace_back(stream->id, peer.status());  // told by the sender's thread
    }
    streams_.emplace(stream->id, std::move(stream));
    transport_->wake();
}

void Sender::detach(const std::string& node) {
    const UrgentLock drive(mutex_);
    for (const auto& [id, stream] : streams_) {
        if (stream->node != node) continue;
        return erase_locked(id);
    }
}

void Sender::complete(const std::string& node) {
    const UrgentLock drive(mutex_);
    for (const auto& [id, stream] : streams_) {
        if (stream->node != node) continue;
        stream->is_complete = true;
        stream->heard = clock_.now();
    }
}

void Sender::erase_locked(StreamId id) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    if (found->second->peer != kNoPeer) transport_->disconnect(found->second->peer);
    reader_.forget(id);
    streams_.erase(found);
}

Sender::Stream* Sender::find(StreamId id) {
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : found->second.get();
}

// ---- the sender's thread ----

void Sender::run() {
    const std::lock_guard drive(mutex_);
    Pacer pacer(options_.wait);
    while (!is_stopping_) {
        int num_events = transport_->progress();
        num_events += take_read_shards_locked();
        for (const auto& [id, stream] : streams_) num_events += send_locked(*stream);
        fail_noted_locked();
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        check_time_locked(now);
        fail_noted_locked();
        pacer.pause(now, mutex_, *transport_, kTick);
    }
}

int Sender::take_read_shards_locked() {
    if (!has_read_.exchange(false)) return 0;
    int num_taken = 0;
    for (ReadShard& read : reader_.take()) {
        Stream* stream = find(read.stream);
        if (stream == nullptr) continue;
        ++num_taken;
        if (!read.status) {
            failures_.emplace_back(read.stream, read.status);
            continue;
        }
        const uint64_t hash = read.packed->hash;
        const bool is_known = stream->known_hashes[read.index] == hash;
        stream->outgoing[read.index] = {.packed = is_known ? nullptr : std::move(read.packed),
                                        .hash = hash};
        stream->queue.push_back(read.index);
    }
    return num_taken;
}

// Fills the stream's window; returns the number of messages.
int Sender::send_locked(Stream& stream) {
    int num_sent = 0;
    while (stream.sends_in_flight < kWindow && send_next_locked(stream)) ++num_sent;
    return num_sent;
}

bool Sender::send_next_locked(Stream& stream) {
    if (!stream.repeats.empty()) {
        const auto [shard, chunk] = stream.repeats.front();
        stream.repeats.pop_front();
        const auto found = stream.outgoing.find(shard);
        const bool is_wanted = found != stream.outgoing.end() && found->second.packed &&
                               chunk < std::ssize(found->second.packed->chunk_hashes);
        return !is_wanted || send_chunk_locked(stream, shard, found->second, chunk);
    }
    if (stream.queue.empty()) return false;
    const uint32_t shard = stream.queue.front();
    const auto found = stream.outgoing.find(shard);
    if (found == stream.outgoing.end()) {  // acknowledged meanwhile
        stream.queue.pop_front();
        return true;
    }
    Outgoing& outgoing = found->second;
    outgoing.sent = clock_.now();
    if (!outgoing.packed) {
        stream.queue.pop_front();
        return post_locked(
            stream, {.kind = wire::StageKind::kSame, .shard = shard, .shard_hash = outgoing.hash},
            {}, nullptr);
    }
    if (!send_chunk_locked(stream, shard, outgoing, outgoing.next_chunk)) return false;
    if (++outgoing.next_chunk == std::ssize(outgoing.packed->chunk_hashes)) {
        stream.queue.pop_front();
    }
    return true;
}

bool Sender::send_chunk_locked(Stream& stream, uint32_t shard, const Outgoing& outgoing,
                               int64_t chunk) {
    const PackedShard& packed = *outgoing.packed;
    const auto offset = static_cast<size_t>(chunk * kShardChunkBytes);
    const auto all = packed.view();
    const auto payload =
        all.subspan(offset, std::min<size_t>(kShardChunkBytes, all.size() - offset));
    stream.counters->bytes.add(std::ssize(payload));
    return post_locked(stream,
                       {.kind = wire::StageKind::kChunk,
                        .shard = shard,
                        .payload_bytes = static_cast<uint32_t>(payload.size()),
                        .offset = offset,
                        .shard_bytes = all.size(),
                        .shard_hash = packed.hash,
                        .chunk_hash = packed.chunk_hashes[static_cast<size_t>(chunk)]},
                       payload, outgoing.packed);
}

// False when the stream cannot be sent to any more; it is then noted as failed.
bool Sender::post_locked(Stream& stream, wire::StageHeader header,
                         std::span<const std::byte> payload,
                         std::shared_ptr<const PackedShard> packed) {
    if (free_slots_.empty()) {
        slots_.push_back(std::make_unique<Slot>());
        free_slots_.push_back(slots_.back().get());
    }
    Slot& slot = *free_slots_.back();
    header.session = stream.session;
    wire::seal_header(header);
    slot.header = header;
    const Status sent = transport_->send(stream.peer, std::as_bytes(std::span(&slot.header, 1)),
                                         payload, reinterpret_cast<uint64_t>(&slot));
    if (!sent) {
        failures_.emplace_back(stream.id, sent);
        return false;
    }
    free_slots_.pop_back();
    slot.packed = std::move(packed);
    slot.stream = stream.id;
    ++stream.sends_in_flight;
    return true;
}

// ---- time ----

void Sender::check_time_locked(TimePoint now) {
    if (now - last_tick_ < kTick) return;
    last_tick_ = now;
    for (const auto& [id, stream] : streams_) check_stream_locked(*stream, now);
    for (auto& [node, counters] : counters_) {
        for (Tally* tally : {&counters.bytes, &counters.sent_shards, &counters.kept_shards,
                             &counters.repeated_chunks}) {
            tally->publish();
        }
    }
}

void Sender::check_stream_locked(Stream& stream, TimePoint now) {
    if (stream.peer == kNoPeer) return;
    if (stream.is_complete) {
        const bool is_over = stream.num_open == 0 || now - stream.heard > kFarewell;
        if (is_over) failures_.emplace_back(stream.id, Status::ok());  // no failure: only its end
        return;
    }
    if (!stream.is_asked && now >= stream.next_open && stream.sends_in_flight == 0) {
        stream.next_open = now + kOpenInterval;
        post_locked(stream, {.kind = wire::StageKind::kOpen}, {}, nullptr);
    }
    const bool is_awaited = !stream.is_asked || !stream.outgoing.empty();
    if (!is_awaited) {
        stream.heard = now;  // It is our disk that is waited for.
    } else if (now - stream.heard > options_.give_up_after) {
        failures_.emplace_back(
            stream.id,
            deadline_exceeded(fmt::format(
                "{} has said nothing about its shards for {:.1f} s ({} are not confirmed)",
                stream.node, to_seconds(now - stream.heard), stream.outgoing.size())));
    } else {
        send_again_locked(stream, now);
    }
}

void Sender::send_again_locked(Stream& stream, TimePoint now) {
    if (!stream.queue.empty() || now - stream.heard < options_.resend_after) return;
    for (auto& [shard, outgoing] : stream.outgoing) {
        if (now - outgoing.sent < options_.resend_after) continue;
        if (++outgoing.attempt > options_.max_attempts) {
            failures_.emplace_back(
                stream.id, deadline_exceeded(fmt::format("{} has not confirmed {}, sent {} times",
                                                         stream.node, name_of(stream.shards[shard]),
                                                         outgoing.attempt - 1)));
            return;
        }
        if (outgoing.packed) {
            stream.counters->repeated_chunks.add(std::ssize(outgoing.packed->chunk_hashes));
        }
        outgoing.next_chunk = 0;
        stream.queue.push_back(shard);
    }
}

void Sender::fail_noted_locked() {
    for (const auto& [id, why] : std::exchange(failures_, {})) fail_locked(id, why);
}

// A stream that has nothing open has only been left by a node that is done.
void Sender::fail_locked(StreamId id, const Status& why) {
    const Stream* stream = find(id);
    if (stream == nullptr) return;
    const bool is_done = stream->is_complete || (stream->is_asked && stream->num_open == 0);
    const std::string node = stream->node;
    erase_locked(id);
    if (!is_done) failed_(node, why);
}

}  // namespace k3pod::exchange

namespace k3pod {

Result<std::unique_ptr<StageSender>> StageSender::create(
    const StageOptions& options, const ShardSource& source, const MakeTransport& make_transport,
    const Clock& clock, MetricsRegistry& metrics, StageFailed failed) {
    auto sender =
        std::make_unique<exchange::Sender>(options, source, clock, metrics, std::move(failed));
    K3POD_TRY(sender->start(make_transport));
    return std::unique_ptr<StageSender>(std::move(sender));
}

}  // namespace k3pod
