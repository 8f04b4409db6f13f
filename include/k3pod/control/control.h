#pragma once
// The control plane over gRPC: the station dials every expert server, both compare versions, the
// station hands over the epoch's shard list, the server reports load progress and then its
// data-plane address. One stream per server stays open; its end tells of a death within
// milliseconds, and its keep-alive of a cut link or a stopped process within 3 s. protobuf and gRPC
// stay inside this room. proto/control.proto is the wire.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"

namespace k3pod {

inline constexpr uint32_t kControlVersion = 1;  // Of proto/control.proto and its rules.

// What one side tells the other in hello. The station and its servers must agree on everything but
// node and process_id; the first difference is refused, naming both values, both protocol versions
// and both build ids. Of ucx_version the part up to the first space counts (the release), the rest
// (the library's path) is only shown.
struct NodeIdentity {
    std::string node;      // "station", "spark-1"
    std::string build_id;  // git commit and flags
    uint32_t control_version = kControlVersion;
    uint32_t wire_version = 0;  // wire::kVersion
    std::string transport;      // "ucx/tcp"
    std::string ucx_version;    // "1.13.1 (/usr/lib/...)" of the loaded library
    // Hash over config.json and the tensor table. 0 when this node cannot read its model: then it
    // is not compared, and ControlHandler::on_hello is asked first, to refuse with the reason.
    uint64_t model_fingerprint = 0;
    uint64_t process_id = 0;  // random per process run: tells a restart
};

// How a server gets its shards from the station instead of from a checkpoint of its own.
struct StagingOffer {
    std::vector<std::byte> address{};  // of the station's sender; empty: no offer
    std::string model_config{};        // the text of config.json
    uint32_t release = 0;              // k3pod::Release of the checkpoint
    std::vector<uint64_t> stamps{};    // one for each shard: another one when its bytes may differ
};

// The work that the station gives one server.
struct Assignment {
    uint64_t session = 0;  // random, new for each control connection
    uint32_t epoch = 0;
    uint16_t node_index = 0;  // holder's index in the placement
    int32_t max_rows = 0;     // rows a frame may carry, 1 to 65535
    std::vector<Shard> shards;
    std::vector<std::byte> station_address;  // data plane
    StagingOffer staging{};
};

enum class ServerPhase : uint8_t { kLoading, kReady, kDraining, kFailed };
const char* server_phase_name(ServerPhase phase);

struct ServerReport {
    ServerPhase phase = ServerPhase::kLoading;
    int64_t loaded_bytes = 0, total_bytes = 0;
    // With kReady. With kLoading: where this node listens for staged shards; empty: it does not.
    std::vector<std::byte> data_address{};
    std::string message{};  // with kFailed: one sentence
};

// What a server does now, for anyone who asks: the applied placement can be read back.
struct NodeStatus {
    NodeIdentity identity;
    ServerPhase phase = ServerPhase::kLoading;  // of the session's last report
    uint64_t session = 0;                       // 0: no station is connected
    uint32_t epoch = 0;
    std::vector<Shard> shards;  // assigned, or what on_status puts there
    int64_t shard_bytes = 0;
    uint64_t num_frames = 0;
    std::string message;                        // with kFailed
    int64_t loaded_bytes = 0, total_bytes = 0;  // of the last load
    double load_bytes_per_s = 0;                // its mean rate, from on_status; 0: not known
};

// How much what was found about a machine matters. Ordered: worse is greater.
enum class Verdict : uint8_t { kOk, kWarning, kFailure };

// One line of what a node finds when it looks at its machine (`k3pod check`), for a person.
struct CheckLine {
    std::string check;  // "rdma mtu mlx5_0:1"
    Verdict verdict = Verdict::kOk;
    std::string found, expected;
    std::string remedy;  // the command, or the one thing, that mends it; empty when ok
    bool operator==(const CheckLine&) const = default;
};

struct NodeCheck {
    NodeIdentity identity;
    int64_t unix_time_ns = 0;  // the node's clock when it answered
    std::vector<CheckLine> lines;
};

// ---- expert server side ----

// Called by the control server on its threads, one call at a time except on_status. A session is
// on_hello, on_assignment, on_session_end in this order, and the next begins only when the last has
// ended.
class ControlHandler {
  public:
    virtual ~ControlHandler() = default;
    // Refuse by an error: the station shows it and keeps trying. Versions agree already, unless
    // this node has no model_fingerprint. A hello that is not followed by an assignment (the
    // station went away) has no on_session_end.
    virtual Status on_hello(const NodeIdentity& station) = 0;
    // Start loading and return at once; report through `report` from any thread. It never blocks:
    // of reports that come faster than ten a second only the latest is sent, and after
    // on_session_end it does nothing. The last shards stay loaded between sessions: the same list
    // again is ready at once.
    virtual void on_assignment(const Assignment& assignment,
                               std::function<void(const ServerReport&)> report) = 0;
    // The stream is over: end the data-plane session, give up a load in progress.
    virtual void on_session_end(uint64_t session) = 0;
    // Adds what only the handler knows: shard_bytes, num_frames, the shards in memory. Any thread.
    virtual void on_status(NodeStatus& status) { static_cast<void>(status); }
    // Looks at the machine; may take seconds. Any thread.
    virtual std::vector<CheckLine> on_check() { return {}; }
};

// One session at a time. A second station is refused by name while the stream of the first is open,
// unless it is the same process (process_id), whose new hello ends its old session: a station that
// dials again has given the old stream up, while a stranger must not take a server from a working
// pod. The stream of a station that died is gone within milliseconds, that of a stopped or
// unreachable one within 3 s; then anyone is welcome.
class ControlServer {
  public:
    virtual ~ControlServer() = default;  // Ends the session. Takes at most a second.
    // Listens at once on host:port and nowhere else (port 0: any). kUnavailable names the address
    // and why. handler is borrowed.
    static Result<std::unique_ptr<ControlServer>> start(const std::string& listen,
                                                        const NodeIdentity& self,
                                                        ControlHandler& handler);
    virtual int port() const = 0;
    // No new sessions; the current station is told that this node drains, and hangs up. Any thread.
    virtual void drain() = 0;
};

// ---- station side ----

// What became of one server; called on the link's thread, never after the link's destructor has
// returned. Must not block for long: the link reads nothing meanwhile.
class ControlEvents {
  public:
    virtual ~ControlEvents() = default;
    // No connection; called once for each reason that differs from the last.
    virtual void on_waiting(const std::string& node, const Status& why) = 0;
    virtual void on_connected(const std::string& node, const NodeIdentity& server) = 0;
    virtual void on_report(const std::string& node, uint64_t session,
                           const ServerReport& report) = 0;
    // The connection of the last on_connected is gone; dialling goes on.
    virtual void on_lost(const std::string& node, const Status& why) = 0;
};

// Dials one server for ever with back-off (100 ms doubling to 500 ms), runs hello and assignment,
// and keeps the stream. Version or fingerprint mismatch is reported through on_waiting with both
// values.
class ControlLink {
  public:
    virtual ~ControlLink() = default;  // Ends the connection at once.
    // `assignment.session` is ignored: each connection gets a fresh random one. Borrowed events.
    static std::unique_ptr<ControlLink> start(const std::string& address, const std::string& node,
                                              const NodeIdentity& self, Assignment assignment,
                                              ControlEvents& events);
    // Break the connection and dial again with a new session (after the data plane saw the node
    // fail). on_lost gets `why`. Nothing happens without a connection. Any thread.
    virtual void reconnect(const Status& why) = 0;
};

// Asks the server at host:port for its status. Blocks up to `timeout`; kUnavailable and
// kDeadlineExceeded name the address.
Result<NodeStatus> read_node_status(const std::string& address, Nanoseconds timeout);
// Asks it to look at its machine, likewise. An answer of another form is kDataLoss.
Result<NodeCheck> read_node_check(const std::string& address, Nanoseconds timeout);

}  // namespace k3pod
