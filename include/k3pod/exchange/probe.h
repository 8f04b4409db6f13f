#pragma once
// E3: one exchange as the pod pays it, and where its time goes. Both ends are the pod's own
// ExchangeClient and ExchangeServer; transports between note when frames pass, and a server writes
// what it measured into the first columns of its reply, in figures that no rounding on the way can
// change.
//
//   station   dispatch ...... sent            got ...... combine returns
//   server                        arrived ... work ... sent
//
// Of the holder that answers last: hand-off is what the station adds before and behind; server is
// what the server adds around the work; expert is the work; wire is the rest, both ways, so that
// clocks of two machines are never compared. The four are the whole by construction.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/placement/placement.h"
#include "k3pod/transport/transport.h"

namespace k3pod {

struct ExchangeParts {
    double total_us = 0;
    double hand_off_us = 0;
    double wire_us = 0;
    double server_us = 0;
    double expert_us = 0;
};

// The experts that rows pick, in turn: [0, num_experts) of one layer.
struct ProbeShape {
    int32_t layer = 0;
    int32_t num_experts = 0;  // top_k or more
    int32_t width = 0;        // of an expert; at least kSliceMultiple for each server
};

// Every expert is cut evenly over all servers, so that each of them gets every row.
Placement probe_placement(const ProbeShape& shape, std::span<const std::string> servers);

// A latent of this many values carries the figures of so many servers.
int32_t max_probe_servers(int32_t latent);

// The station's end. One thread.
class ExchangeProbe {
  public:
    virtual ~ExchangeProbe() = default;
    // kInvalidArgument when there are more servers than a latent or an expert has room for.
    static Result<std::unique_ptr<ExchangeProbe>> create(const ExchangeOptions& options,
                                                         const ProbeShape& shape,
                                                         std::span<const std::string> servers,
                                                         const MakeTransport& make_transport);
    virtual std::vector<std::byte> local_address() const = 0;
    virtual Status attach(const std::string& server, std::span<const std::byte> address,
                          uint64_t session) = 0;
    // `rows` rows to every server and back, limits.max_rows at most. Errors as of ExpertPort.
    virtual Status exchange(int32_t rows) = 0;
    // Of the exchanges since the last call, but for the last: the time that a server needs to send
    // a reply arrives with its next one.
    virtual std::vector<ExchangeParts> take() = 0;
};

// A server's end. Functions as those of ExchangeServer.
class ProbeServer {
  public:
    virtual ~ProbeServer() = default;
    static Result<std::unique_ptr<ProbeServer>> create(const ExchangeOptions& options,
                                                       const MakeTransport& make_transport);
    virtual std::vector<std::byte> local_address() const = 0;
    // An empty `work` is none: replies are zeros.
    virtual Status open_session(const Assignment& assignment, FrameWork work) = 0;
    virtual void close_session(uint64_t session) = 0;
};

}  // namespace k3pod
