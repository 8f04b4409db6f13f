#pragma once
// The expert exchange: dispatch and combine over a Transport on the station, and the endpoint that
// answers on an expert server. Wire format: wire/frame.h. Failure rules: docs/failures.md.
//
// Who drives the transport: whoever waits. The step thread polls inside combine(); a keeper thread
// polls when no one else does (heartbeats, late frames). On the server the worker thread polls for
// frames and computes with the transport released, while the keeper answers heartbeats, so that a
// long computation never looks like a dead server.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/bf16.h"
#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/control/control.h"
#include "k3pod/experts/expert_store.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/placement/placement.h"
#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"

namespace k3pod {

enum class WaitPolicy : uint8_t {
    kAuto,  // spin with sched_yield every 20 empty polls, sleep after 1 ms idle
    kSpin,  // never give the core away: for a core of its own
};

struct ExchangeOptions {
    wire::FrameLimits limits;
    WaitPolicy wait = WaitPolicy::kAuto;
    bool reply_f32 = false;  // Station: ask for fp32 rows.
    bool check_payload = true;
    Nanoseconds frame_deadline{std::chrono::seconds(1)};
    Nanoseconds heartbeat_interval{std::chrono::milliseconds(100)};
    int32_t heartbeats_missed = 5;  // Silent for this many intervals: the peer is dead.
    // Station: how long combine() waits for a lost server to be attached again. 0: not at all, the
    // layer fails at once.
    Nanoseconds hold_timeout{0};
};

// The work of one frame, with the contract of ExpertRunner::run: latents [rows, L] bf16, entries
// sorted by (expert, row), out [rows, L] fp32, overwritten. One call at a time.
using FrameWork =
    std::function<Status(int32_t layer, int32_t rows, std::span<const Bf16> latents,
                         std::span<const wire::WireEntry> entries, std::span<float> out)>;

// ---- station ----

// With a hold_timeout, a layer whose server is lost, late or answers nonsense is held: combine()
// stays where it is, the frame goes out again in the server's next session, or to the same one as
// long as that lives, and the sum is exact whoever was lost how often. After hold_timeout (counted
// from the server's loss, if it was lost before) the layer fails with kUnavailable.

// A server became unusable: killed, silent, refused. Called on the keeper's thread, must not block.
// The node stays unusable until attach(). Not called for what detach() took away.
using PeerDown = std::function<void(const std::string& node, const Status& why)>;

class ExchangeClient : public ExpertPort {
  public:
    // `placement` is copied. `local` does the work of the holder named "station", inside combine();
    // empty when it holds nothing. Every buffer is allocated here for limits.max_rows rows.
    static Result<std::unique_ptr<ExchangeClient>> create(const ExchangeOptions& options,
                                                          const Placement& placement,
                                                          const MakeTransport& make_transport,
                                                          FrameWork local, const Clock& clock,
                                                          MetricsRegistry& metrics,
                                                          PeerDown peer_down);
    // The same with the runner of the station's own tier, borrowed; null when there is none.
    static Result<std::unique_ptr<ExchangeClient>> create(const ExchangeOptions& options,
                                                          const Placement& placement,
                                                          const MakeTransport& make_transport,
                                                          ExpertRunner* local, const Clock& clock,
                                                          MetricsRegistry& metrics,
                                                          PeerDown peer_down);

    // Bytes to hand to servers over control. Any thread.
    virtual std::vector<std::byte> local_address() const = 0;
    // A server finished loading: its address and the session number agreed over control. Replaces
    // an earlier connection of the same node, whose late replies are dropped by session. Any
    // thread.
    virtual Status attach(const std::string& node, std::span<const std::byte> address,
                          uint64_t session) = 0;
    // The control stream broke or the node drains: what is outstanding there is held, or fails at
    // once. A node that is not attached or unknown is ignored. Any thread.
    virtual void detach(const std::string& node, const Status& why) = 0;
    // Names of holders with shards that are not attached. Empty: a step can run. Any thread.
    virtual std::vector<std::string> missing() const = 0;
};

// ---- expert server ----

class ExchangeServer {
  public:
    virtual ~ExchangeServer() = default;
    // Starts the worker and keeper threads. Destruction stops them, after the frame in work.
    static Result<std::unique_ptr<ExchangeServer>> create(const ExchangeOptions& options,
                                                          const MakeTransport& make_transport,
                                                          const Clock& clock,
                                                          MetricsRegistry& metrics);
    // Bytes to hand to the station over control. Any thread.
    virtual std::vector<std::byte> local_address() const = 0;
    // Opens the one session that is served, on the shards of `store` (shared: kept while frames
    // run). An open one is closed first. Uses session, epoch, node_index, max_rows and
    // station_address of the assignment. Frames of another session are dropped and counted, of
    // another epoch refused by number. kInvalidArgument when max_rows is over this node's own
    // limits.max_rows. Any thread.
    virtual Status open_session(const Assignment& assignment,
                                std::shared_ptr<const ExpertStore> store) = 0;
    // The same with any work instead of experts; `work` is kept while a frame runs.
    virtual Status open_session(const Assignment& assignment, FrameWork work) = 0;
    // Another session than the open one is ignored. Any thread.
    virtual void close_session(uint64_t session) = 0;
    // Frames answered since start; does not move while the server is stuck. Any thread.
    virtual uint64_t num_frames() const = 0;
};

}  // namespace k3pod
