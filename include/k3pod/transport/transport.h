#pragma once
// Messages between processes: a 64-byte header and a payload, unordered between peers, ordered per
// peer. Implementations: UCX active messages (transport/ucx), loopback in one process
// (transport/loopback), and a decorator that delays, drops, duplicates, corrupts and disconnects
// (transport/faulty). All pass tests/contract/transport.
//
// Threading: one thread at a time drives a Transport ("the driver", guarded by the caller's mutex);
// it may be another thread the next time. wait() and wake() are for any thread, driver or not.
// The handler is called only from inside progress(), on the driver's thread.
// Completion of a send proves nothing about the peer; only a reply does.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod {

using PeerId = int32_t;  // Chosen by the transport that connects, which never gives it out again.
inline constexpr PeerId kNoPeer = -1;

// No Transport method may be called from inside the handler: note what is to be done, and do it
// after progress() has returned.
class TransportHandler {
  public:
    virtual ~TransportHandler() = default;
    // header is 64 bytes, payload may be empty. Both are valid only during the call and may lie at
    // any alignment. The sender is told by the header (session, node), not by the transport.
    virtual void on_message(std::span<const std::byte> header,
                            std::span<const std::byte> payload) = 0;
    // The buffers given to send() with this token may be reused. Exactly once for each send() that
    // returned ok, also after a disconnect or a failure of the peer.
    virtual void on_sent(uint64_t token) = 0;
    // The peer's endpoint is gone; sends to it fail until a new connect(). At most once per peer,
    // and never after disconnect(peer).
    virtual void on_peer_failed(PeerId peer, const Status& why) = 0;
};

class Transport {
  public:
    // The handler is not called any more; buffers of outstanding sends are free after destruction.
    virtual ~Transport() = default;

    // Opaque bytes that a peer needs for connect(). Belongs to this process run: exchange it over
    // control every time, never store it.
    virtual std::vector<std::byte> local_address() const = 0;
    // "ucx/tcp", "loopback", ...
    virtual std::string name() const = 0;

    // Returns at once; a peer that is not there shows as an error here or as on_peer_failed later.
    // Damaged address bytes are an error. peer_name is for messages. Of two that talk to each
    // other, the one that is spoken to first connects first (docs/wire.md, first contact).
    virtual Result<PeerId> connect(std::span<const std::byte> address,
                                   const std::string& peer_name) = 0;
    // Forced, without a word to the peer: outstanding sends end with on_sent in a later progress().
    // Unknown or already gone peers are ignored.
    virtual void disconnect(PeerId peer) = 0;

    // Zero copy: header and payload stay untouched until on_sent(token), which comes from a later
    // progress(). kUnavailable when the peer has failed or was disconnected, kInvalidArgument when
    // the header is not 64 bytes or the payload is over max_message_bytes(); on_sent is then not
    // called. token is the caller's own.
    virtual Status send(PeerId peer, std::span<const std::byte> header,
                        std::span<const std::byte> payload, uint64_t token) = 0;
    virtual int64_t max_message_bytes() const = 0;

    // Polls once; calls the handler. Returns the number of events handled, 0 when idle.
    virtual int progress() = 0;
    // Sleeps until progress() may have something to do, wake() is called or the timeout passes.
    // Spurious returns are allowed. Needs no driver role, so another thread may drive meanwhile.
    virtual void wait(Nanoseconds timeout) = 0;
    // Ends every wait() in progress; with none, the next one returns at once.
    virtual void wake() = 0;
};

enum class TransportKind : uint8_t { kShm, kTcp, kRc };

struct UcxOptions {
    TransportKind kind = TransportKind::kTcp;
    // One NIC function, e.g. "mlx5_0:1" (rc), or an interface, e.g. "eth0" (tcp); empty: UCX
    // chooses.
    std::string device{};
};

// One UCX context and worker. Every tuning key is set in code, so that a user's UCX_* variables
// cannot bend it. Fails naming the transport, the device and what UCX said. handler is borrowed.
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options,
                                                      TransportHandler& handler);

// "1.13.1" of the library loaded, and its path: hello compares it on both ends.
std::string ucx_version();

// Transports of one network find each other by local_address(). Thread-safe; copies payloads.
class LoopbackNetwork;
std::shared_ptr<LoopbackNetwork> make_loopback_network();
std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackNetwork> network,
                                                   TransportHandler& handler);

// Faults on outgoing messages, decided by `seed`: the wire as it may be on a bad day. Rates in [0,
// 1].
struct FaultPlan {
    uint64_t seed = 1;
    double drop_rate = 0;
    double duplicate_rate = 0;
    double corrupt_rate = 0;     // one bit of header or payload flipped
    double disconnect_rate = 0;  // the peer fails instead of the send
    Nanoseconds min_delay{0};
    Nanoseconds max_delay{0};  // uniform; order between messages may change
};
// Takes its handler at construction like the others; `make_inner` builds the wrapped transport on
// the decorator's own handler.
using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(TransportHandler&)>;
Result<std::unique_ptr<Transport>> make_faulty_transport(const FaultPlan& plan, const Clock& clock,
                                                         const MakeTransport& make_inner,
                                                         TransportHandler& handler);

}  // namespace k3pod
