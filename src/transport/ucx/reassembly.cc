#include "transport/ucx/reassembly.h"

#include <fmt/format.h>

#include <cstring>

#include "transport/message.h"

namespace k3pod::ucx {
namespace {

// A sender that died leaves its last message unfinished. Parts follow each other within
// milliseconds.
constexpr Nanoseconds kStaleAfter = std::chrono::seconds(10);
// More than a station has servers; what is over it is given back to the allocator.
constexpr size_t kMaxSpareBuffers = 8;
constexpr size_t kMaxUnfinished = 256;

}  // namespace

Result<std::optional<Reassembly::Message>> Reassembly::add(std::span<const std::byte> header,
                                                           std::span<const std::byte> payload) {
    give_back(std::move(finished_.buffer));
    PartHeader part;
    if (header.size() < sizeof(part)) {
        return invalid_argument(fmt::format("part of a message: header is {} bytes, expected {}",
                                            header.size(), sizeof(part)));
    }
    std::memcpy(&part, header.data(), sizeof(part));
    const Key key{part.sender, part.stream};
    if (part.offset == 0) K3POD_TRY(begin(key, part, header.subspan(sizeof(part))));

    const auto it = unfinished_.find(key);
    if (it == unfinished_.end() || it->second.message != part.message ||
        it->second.total != part.total || it->second.received != part.offset || payload.empty() ||
        payload.size() > part.total - part.offset) {
        if (it != unfinished_.end()) {
            give_back(std::move(it->second.buffer));
            unfinished_.erase(it);
        }
        return invalid_argument(fmt::format(
            "part of message {}: {} bytes at {} of {} do not follow what arrived before",
            part.message, payload.size(), part.offset, part.total));
    }
    Unfinished& message = it->second;
    std::memcpy(message.buffer.bytes.get() + part.offset, payload.data(), payload.size());
    message.received += static_cast<uint32_t>(payload.size());
    message.last_part = clock_.now();
    if (message.received < message.total) return std::optional<Message>();

    finished_ = std::move(message);
    unfinished_.erase(it);
    return std::optional<Message>(
        Message{finished_.header, {finished_.buffer.bytes.get(), finished_.total}});
}

Status Reassembly::begin(const Key& key, const PartHeader& part,
                         std::span<const std::byte> header) {
    if (header.size() != wire::kHeaderBytes || part.total > transport::kMaxMessageBytes) {
        return invalid_argument(fmt::format(
            "first part of a message: {} header bytes, expected {}; {} payload bytes, "
            "the limit is {}",
            header.size(), wire::kHeaderBytes, part.total, transport::kMaxMessageBytes));
    }
    drop_stale();
    if (unfinished_.size() >= kMaxUnfinished && !unfinished_.contains(key)) {
        return resource_exhausted(
            fmt::format("{} messages are unfinished, the limit is {}; this one is dropped",
                        unfinished_.size(), kMaxUnfinished));
    }
    Unfinished& message = unfinished_[key];
    give_back(std::move(message.buffer));
    message = {.header = {header.begin(), header.end()},
               .buffer = take_buffer(part.total),
               .message = part.message,
               .total = part.total,
               .last_part = clock_.now()};
    return Status::ok();
}

void Reassembly::drop_stale() {
    const TimePoint now = clock_.now();
    std::erase_if(unfinished_,
                  [&](const auto& entry) { return now - entry.second.last_part > kStaleAfter; });
}

Reassembly::Buffer Reassembly::take_buffer(size_t num_bytes) {
    for (Buffer& buffer : spare_) {
        if (buffer.capacity < num_bytes) continue;
        std::swap(buffer, spare_.back());
        Buffer taken = std::move(spare_.back());
        spare_.pop_back();
        return taken;
    }
    return {std::make_unique_for_overwrite<std::byte[]>(num_bytes), num_bytes};
}

void Reassembly::give_back(Buffer buffer) {
    if (buffer.bytes == nullptr) return;
    if (spare_.size() == kMaxSpareBuffers) spare_.erase(spare_.begin());
    spare_.push_back(std::move(buffer));
}

}  // namespace k3pod::ucx
