#pragma once
// What both ends of the exchange do with frames.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/clock.h"
#include "k3pod/device/matrix.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"

namespace k3pod::exchange {

// A message and the memory it is sent from, not to be touched while sends_in_flight > 0. Stays
// where it is: its address is the token of its sends.
struct SendSlot {
    wire::FrameHeader header{};
    HostBuffer payload;
    int64_t payload_bytes = 0;
    int32_t sends_in_flight = 0;
};

inline Status send_slot(Transport& transport, PeerId peer, SendSlot& slot) {
    const auto header = std::as_bytes(std::span(&slot.header, 1));
    const std::span<const std::byte> payload(slot.payload.data(),
                                             static_cast<size_t>(slot.payload_bytes));
    K3POD_TRY(transport.send(peer, header, payload, reinterpret_cast<uint64_t>(&slot)));
    ++slot.sends_in_flight;
    return Status::ok();
}

// For TransportHandler::on_sent.
inline void end_send(uint64_t token) {
    --reinterpret_cast<SendSlot*>(token)->sends_in_flight;
}

// How often time is looked at by whoever drives, and by the keeper when nobody does.
inline Nanoseconds tick_of(const ExchangeOptions& options) {
    return std::clamp<Nanoseconds>(options.heartbeat_interval / 5, std::chrono::milliseconds(1),
                                   std::chrono::milliseconds(20));
}

inline uint64_t nanoseconds_of(TimePoint t) {
    return static_cast<uint64_t>(t.time_since_epoch().count());
}

// kInvalidArgument names the option, its value and what is expected.
Status check_options(const ExchangeOptions& options);

template <class T>
std::span<T> as_span(HostBuffer& buffer, int64_t size) {
    return {reinterpret_cast<T*>(buffer.data()), static_cast<size_t>(size)};
}

}  // namespace k3pod::exchange
