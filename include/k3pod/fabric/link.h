#pragma once
// E2: what the wire between the station and its servers carries, without the exchange around it. A
// LinkEnd on each server answers; a LinkProbe on the station asks. One of each per rail (a NIC
// function on either side); several servers are asked at once through one probe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/transport/transport.h"

namespace k3pod {

// A server's end: answers on a thread of its own, which sleeps while nobody asks.
class LinkEnd {
  public:
    virtual ~LinkEnd() = default;
    static Result<std::unique_ptr<LinkEnd>> create(const MakeTransport& make_transport);
    virtual std::vector<std::byte> local_address() const = 0;
    // The station's probe; replaces an earlier one. Any thread.
    virtual Status connect(std::span<const std::byte> address) = 0;
};

// The station's end. One thread at a time.
class LinkProbe {
  public:
    virtual ~LinkProbe() = default;
    static Result<std::unique_ptr<LinkProbe>> create(const MakeTransport& make_transport);
    virtual std::vector<std::byte> local_address() const = 0;
    // Servers are numbered in this order.
    virtual Status connect(std::span<const std::byte> address, const std::string& server) = 0;

    // Microseconds of `count` messages of `bytes` to one server and back, one after the other.
    // kDeadlineExceeded names a server that is silent for two seconds.
    virtual Result<std::vector<double>> round_trips(int32_t server, int64_t bytes,
                                                    int32_t count) = 0;
    // Bytes per second to each of `servers`, all at once, for so long. Bytes count when the server
    // has said that it has them.
    virtual Result<std::vector<double>> bandwidth(std::span<const int32_t> servers,
                                                  Nanoseconds duration) = 0;
};

}  // namespace k3pod
