#pragma once
// Bringing expert shards from the station to the expert servers over the data plane's transport,
// before a session serves. Each side has a transport of its own for it, so that bulk never stands
// in the way of a frame. Messages: wire/stage.h; rules and figures: docs/staging.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/experts/shard_source.h"
#include "k3pod/experts/staged_load.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/transport/transport.h"
#include "k3pod/weights/load_progress.h"

namespace k3pod {

struct StageOptions {
    WaitPolicy wait = WaitPolicy::kAuto;
    // Packed shards in memory between reading and acknowledgement, of all nodes together. One shard
    // of each node is always allowed.
    int64_t buffer_bytes = int64_t{512} << 20;
    int32_t num_readers = 2;  // threads that read and repack
    // A shard that is not acknowledged while the node says nothing for this long is sent again.
    Nanoseconds resend_after{std::chrono::seconds(5)};
    int32_t max_attempts = 5;  // of one shard
    // A node that says nothing for this long while something is expected of it has failed.
    Nanoseconds give_up_after{std::chrono::seconds(20)};
};

// A node's stream ended: its link failed, or a shard could not be read (the code tells which). On
// the sender's thread; must not block, nor call the sender.
using StageFailed = std::function<void(const std::string& node, const Status& why)>;

// The station's end. Reads each expert once for all nodes that want slices of it, in the order of
// the files, and sends to all nodes at once.
class StageSender {
  public:
    virtual ~StageSender() = default;
    // Borrows source, clock and metrics.
    static Result<std::unique_ptr<StageSender>> create(const StageOptions& options,
                                                       const ShardSource& source,
                                                       const MakeTransport& make_transport,
                                                       const Clock& clock, MetricsRegistry& metrics,
                                                       StageFailed failed);
    // Bytes to hand to servers over control. Any thread.
    virtual std::vector<std::byte> local_address() const = 0;
    // A server listens at `address` for the shards of its session, and will say which it lacks.
    // Attaching the same session again changes nothing; another session of the node replaces it.
    // Any thread.
    virtual void attach(const std::string& node, std::span<const std::byte> address,
                        uint64_t session, std::span<const Shard> shards) = 0;
    // The session is over. Unknown nodes are ignored. Any thread.
    virtual void detach(const std::string& node) = 0;
    // The server has said that it has everything: what it says of its last shards is still read,
    // and nothing of it is a failure any more. Any thread.
    virtual void complete(const std::string& node) = 0;
};

// An expert server's end. One thread, but local_address().
class StageReceiver {
  public:
    virtual ~StageReceiver() = default;
    static Result<std::unique_ptr<StageReceiver>> create(WaitPolicy wait,
                                                         const MakeTransport& make_transport,
                                                         const Clock& clock,
                                                         MetricsRegistry& metrics);
    virtual std::vector<std::byte> local_address() const = 0;

    struct Session {
        uint64_t id = 0;
        std::span<const std::byte> station;  // StageSender::local_address()
        // Called when the station may attach.
        std::function<void()> is_listening;
        // Called after each shard, with its index.
        std::function<void(uint32_t shard)> has_shard;
        // Asked every 20 ms: false ends receive() with kCancelled.
        std::function<bool()> goes_on;
    };
    // Receives what `load` lacks, straight into its memory, until it is complete. A link that
    // breaks is the station's to notice: it ends the session, and goes_on() says so.
    virtual Status receive(const Session& session, StagedLoad& load) = 0;
};

}  // namespace k3pod
