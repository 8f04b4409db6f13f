// What expert servers say to the sender. Inside the transport: nothing is sent from here.

#include <fmt/format.h>

#include <cstring>

#include "exchange/stage_sender.h"

namespace k3pod::exchange {

void Sender::on_message(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const auto message = wire::decode_stage_header(header, payload);
    if (!message) return dropped_.add();
    for (const auto& [id, stream] : streams_) {
        if (stream->session != message->session) continue;
        stream->heard = clock_.now();
        switch (message->kind) {
            case wire::StageKind::kAsk:
                // A damaged list would leave out a shard for ever.
                if (message->chunk_hash != chunk_hash(payload)) return dropped_.add();
                return on_ask(*stream, payload);
            case wire::StageKind::kAck:
                return on_ack(*stream, *message);
            case wire::StageKind::kAgain:
                return on_again(*stream, *message);
            case wire::StageKind::kOpen:
            case wire::StageKind::kChunk:
            case wire::StageKind::kSame:
                return dropped_.add();
        }
    }
    dropped_.add();
}

void Sender::on_ask(Stream& stream, std::span<const std::byte> payload) {
    if (stream.is_asked) return;  // An answer to an earlier open.
    std::vector<WantedShard> wanted;
    for (size_t at = 0; at + sizeof(wire::StageAsk) <= payload.size();
         at += sizeof(wire::StageAsk)) {
        wire::StageAsk ask;
        std::memcpy(&ask, payload.data() + at, sizeof(ask));
        if (ask.shard >= stream.shards.size()) return dropped_.add();
        const bool is_new = stream.known_hashes.emplace(ask.shard, ask.known_hash).second;
        if (is_new) wanted.push_back({ask.shard, stream.shards[ask.shard]});
    }
    stream.is_asked = true;
    stream.num_open = std::ssize(wanted);
    reader_.want(stream.id, wanted);
}

void Sender::on_ack(Stream& stream, const wire::StageHeader& header) {
    const auto found = stream.outgoing.find(header.shard);
    if (found == stream.outgoing.end()) return;  // It was sent again, and acknowledged twice.
    (found->second.packed ? stream.counters->sent_shards : stream.counters->kept_shards).add();
    stream.outgoing.erase(found);
    --stream.num_open;
}

void Sender::on_again(Stream& stream, const wire::StageHeader& header) {
    const auto found = stream.outgoing.find(header.shard);
    if (found == stream.outgoing.end() || !found->second.packed) return;
    Outgoing& outgoing = found->second;
    const auto chunk = static_cast<int64_t>(header.offset) / kShardChunkBytes;
    if (chunk >= std::ssize(outgoing.packed->chunk_hashes)) return dropped_.add();
    if (++outgoing.attempt > options_.max_attempts) {
        const Shard& shard = stream.shards[header.shard];
        failures_.emplace_back(
            stream.id,
            data_loss(fmt::format("layer {} expert {} reached {} damaged {} times: byte {} of the "
                                  "shard has hash {:016x}, expected {:016x}; look at the link",
                                  shard.layer, shard.expert, stream.node, outgoing.attempt - 1,
                                  header.offset, header.chunk_hash,
                                  outgoing.packed->chunk_hashes[static_cast<size_t>(chunk)])));
        return;
    }
    stream.counters->repeated_chunks.add();
    stream.repeats.push_back({header.shard, chunk});
}

void Sender::on_sent(uint64_t token) {
    Slot* const slot = reinterpret_cast<Slot*>(token);
    slot->packed.reset();
    if (Stream* stream = find(slot->stream)) --stream->sends_in_flight;
    free_slots_.push_back(slot);
}

void Sender::on_peer_failed(PeerId peer, const Status& why) {
    for (const auto& [id, stream] : streams_) {
        if (stream->peer == peer) failures_.emplace_back(id, why);
    }
}

}  // namespace k3pod::exchange
