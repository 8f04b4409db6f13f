#pragma once
// The control plane over gRPC: the station dials every expert server, both compare versions, the station
// hands over the epoch's shard list, the server reports load progress and then its data-plane address.
// One stream per server stays open; its end tells of a death within milliseconds. protobuf and gRPC
// stay inside this room. proto/control.proto is the wire.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"

namespace k3pod {

inline constexpr uint32_t kControlVersion = 1;  // other majors are refused by name, both versions shown

// What one side tells the other in hello.
struct NodeIdentity {
    std::string node;            // "station", "spark-1"
    std::string build_id;        // git commit and flags
    uint32_t control_version = kControlVersion;
    uint32_t wire_version = 0;   // wire::kVersion
    std::string transport;       // "ucx/tcp"
    std::string ucx_version;     // of the loaded library
    uint64_t model_fingerprint = 0;  // hash over config.json and the tensor table
    uint64_t process_id = 0;     // random per process run: tells a restart
};

// The work that the station gives one server.
struct Assignment {
    uint64_t session = 0;        // random, new for each control connection
    uint32_t epoch = 0;
    uint16_t node_index = 0;     // holder's index in the placement
    int32_t max_rows = 0;        // rows a frame may carry
    std::vector<Shard> shards;
    std::vector<std::byte> station_address;  // data plane
};

enum class ServerPhase : uint8_t { kLoading, kReady, kDraining, kFailed };
const char* server_phase_name(ServerPhase phase);

struct ServerReport {
    ServerPhase phase = ServerPhase::kLoading;
    int64_t loaded_bytes = 0, total_bytes = 0;
    std::vector<std::byte> data_address;  // with kReady
    std::string message;                  // with kFailed: one sentence
};

// ---- expert server side ----

// Called by the control server, on its threads. One session at a time: a new hello ends the old session.
class ControlHandler {
  public:
    virtual ~ControlHandler() = default;
    // Refuse by an error: the station shows it and keeps trying.
    virtual Status on_hello(const NodeIdentity& station) = 0;
    // Start loading; report through `report` from any thread until on_session_end. The last shards stay
    // loaded between sessions: the same list again is ready at once.
    virtual void on_assignment(const Assignment& assignment,
                               std::function<void(const ServerReport&)> report) = 0;
    virtual void on_session_end(uint64_t session) = 0;
};

class ControlServer {
  public:
    virtual ~ControlServer() = default;
    // Listens at once on host:port (port 0: any). kUnavailable names the address and why.
    static Result<std::unique_ptr<ControlServer>> start(const std::string& listen,
                                                        const NodeIdentity& self,
                                                        ControlHandler& handler);
    virtual int port() const = 0;
    // No new sessions; the current station is told that this node drains. Any thread.
    virtual void drain() = 0;
};

// ---- station side ----

// What became of one server; called on the link's thread.
class ControlEvents {
  public:
    virtual ~ControlEvents() = default;
    virtual void on_waiting(const std::string& node, const Status& why) = 0;  // each failed attempt that differs
    virtual void on_connected(const std::string& node, const NodeIdentity& server) = 0;
    virtual void on_report(const std::string& node, uint64_t session, const ServerReport& report) = 0;
    virtual void on_lost(const std::string& node, const Status& why) = 0;
};

// Dials one server for ever with back-off (100 ms doubling to 2 s), runs hello and assignment, and keeps
// the stream. Version or fingerprint mismatch is reported through on_waiting with both values.
class ControlLink {
  public:
    virtual ~ControlLink() = default;
    // `assignment.session` is ignored: each connection gets a fresh random one. Borrowed events.
    static std::unique_ptr<ControlLink> start(const std::string& address, const std::string& node,
                                              const NodeIdentity& self, Assignment assignment,
                                              ControlEvents& events);
    // Break the connection and dial again with a new session (after the data plane saw the node fail).
    virtual void reconnect(const Status& why) = 0;
};

}  // namespace k3pod
