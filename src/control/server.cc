// The expert server's end: one session at a time, one gRPC thread runs it from hello to end.

#include <fmt/format.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "control.grpc.pb.h"
#include "control/convert.h"
#include "control/grpc_setup.h"
#include "control/identity.h"
#include "control/listen_error.h"
#include "control/mailbox.h"
#include "control/station_stream.h"
#include "k3pod/control/control.h"

namespace k3pod {
namespace control {
namespace {

constexpr Nanoseconds kMessageTimeout = std::chrono::seconds(5);
constexpr Nanoseconds kEndTimeout = std::chrono::seconds(5);
constexpr Nanoseconds kFarewellTimeout = std::chrono::milliseconds(300);
constexpr std::chrono::milliseconds kShutdownTimeout{500};

// The station that is being served.
struct CurrentSession {
    NodeIdentity station;
    StationStream* stream;
    Assignment assignment;  // session 0 until it has arrived
};

class Server final : public ControlServer, private v1::Control::Service {
  public:
    Server(const NodeIdentity& self, ControlHandler& handler) : self_(self), handler_(handler) {}
    ~Server() override;

    Status listen(const std::string& address);

    int port() const override { return port_; }
    void drain() override;

  private:
    grpc::Status Session(grpc::ServerContext* context, StationStream::Stream* stream) override;
    grpc::Status GetStatus(grpc::ServerContext* context, const v1::StatusRequest* request,
                           v1::StatusReply* reply) override;
    grpc::Status Check(grpc::ServerContext* context, const v1::CheckRequest* request,
                       v1::CheckReply* reply) override;

    Status admit(const v1::Hello& hello, StationStream& stream);
    Status take_place(const NodeIdentity& station, StationStream& stream);
    void leave_place();
    void wait_for_farewell();
    void serve(StationStream& stream);
    NodeStatus status() const;

    const NodeIdentity self_;
    ControlHandler& handler_;
    int port_ = 0;

    mutable std::mutex mutex_;
    std::condition_variable place_free_;
    std::optional<CurrentSession> current_;
    bool is_draining_ = false;

    std::unique_ptr<grpc::Server> server_;  // Last: its threads use what is above.
};

Server::~Server() {
    drain();
    wait_for_farewell();
    {
        const std::lock_guard lock(mutex_);
        if (current_) current_->stream->end();
    }
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kShutdownTimeout);
}

Status Server::listen(const std::string& address) {
    K3POD_TRY(check_listen_address(self_.node, address));
    grpc::ServerBuilder builder;
    configure_server(builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) return listen_error(self_.node, address);
    return Status::ok();
}

void Server::drain() {
    const std::lock_guard lock(mutex_);
    if (is_draining_) return;
    is_draining_ = true;
    if (current_) current_->stream->mailbox()->put_report({.phase = ServerPhase::kDraining});
}

// The station hangs up when it has read that this node drains. A stream that is cancelled at once
// may lose that message.
void Server::wait_for_farewell() {
    std::shared_ptr<Mailbox> mailbox;
    {
        const std::lock_guard lock(mutex_);
        if (current_) mailbox = current_->stream->mailbox();
    }
    if (mailbox) mailbox->wait_closed(kFarewellTimeout);
}

grpc::Status Server::Session(grpc::ServerContext* context, StationStream::Stream* stream) {
    StationStream station(*context, *stream);
    const auto first = station.mailbox()->take_message(kMessageTimeout);
    if (!first || !first->has_hello()) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "expected hello as the first message"};
    }
    const Status admitted = admit(first->hello(), station);
    const bool is_sent = station.write(to_proto(self_, admitted));
    if (!admitted.is_ok()) {
        station.mailbox()->wait_closed(kMessageTimeout);  // The station reads it and hangs up.
        return grpc::Status::OK;
    }
    if (is_sent) serve(station);
    leave_place();
    return grpc::Status::OK;
}

Status Server::admit(const v1::Hello& hello, StationStream& stream) {
    const NodeIdentity station = from_proto(hello.station());
    if (hello.wanted_node() != self_.node) {
        return failed_precondition(fmt::format(
            "'{}' was dialled, but '{}' answers here; give each node its own control address in "
            "the pod file",
            hello.wanted_node(), self_.node));
    }
    // A node that could not read its model says so, whatever else is wrong with it.
    const bool has_model = self_.model_fingerprint != 0;
    if (has_model) K3POD_TRY(check_same_release(station, self_));
    K3POD_TRY(take_place(station, stream));
    Status welcome = handler_.on_hello(station);
    if (welcome.is_ok() && !has_model) welcome = check_same_release(station, self_);
    if (!welcome.is_ok()) leave_place();
    return welcome;
}

Status Server::take_place(const NodeIdentity& station, StationStream& stream) {
    const TimePoint deadline = std::chrono::steady_clock::now() + kEndTimeout;
    std::unique_lock lock(mutex_);
    while (current_ && !is_draining_) {
        if (current_->station.process_id != station.process_id) {
            return failed_precondition(fmt::format(
                "{} serves another station already (process {:016x}, this one is {:016x}); stop "
                "one of the two",
                self_.node, current_->station.process_id, station.process_id));
        }
        current_->stream->end();
        if (place_free_.wait_until(lock, deadline) == std::cv_status::timeout) {
            return unavailable(fmt::format("{} is still ending its last session", self_.node));
        }
    }
    if (is_draining_) {
        return unavailable(fmt::format("{} is draining and takes no new session", self_.node));
    }
    current_ = CurrentSession{.station = station, .stream = &stream, .assignment = {}};
    return Status::ok();
}

void Server::leave_place() {
    const std::lock_guard lock(mutex_);
    current_.reset();
    place_free_.notify_all();
}

// From the assignment to the end of the stream.
void Server::serve(StationStream& stream) {
    const auto message = stream.mailbox()->take_message(kMessageTimeout);
    if (!message) return;
    const Result<Assignment> assignment = from_proto(message->assignment());
    if (!assignment.is_ok()) {
        stream.write(
            ServerReport{.phase = ServerPhase::kFailed, .message = assignment.status().message()});
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        current_->assignment = *assignment;
    }
    handler_.on_assignment(*assignment, [mailbox = stream.mailbox()](const ServerReport& report) {
        mailbox->put_report(report);
    });
    while (const auto report = stream.mailbox()->take_report()) {
        if (!stream.write(*report)) break;
    }
    handler_.on_session_end(assignment->session);
}

grpc::Status Server::GetStatus(grpc::ServerContext*, const v1::StatusRequest*,
                               v1::StatusReply* reply) {
    NodeStatus now = status();
    handler_.on_status(now);
    *reply = to_proto(now);
    return grpc::Status::OK;
}

grpc::Status Server::Check(grpc::ServerContext*, const v1::CheckRequest*, v1::CheckReply* reply) {
    NodeCheck check{.identity = self_, .lines = handler_.on_check()};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    check.unix_time_ns = std::chrono::nanoseconds(now).count();
    *reply = to_proto(check);
    return grpc::Status::OK;
}

NodeStatus Server::status() const {
    NodeStatus status;
    status.identity = self_;
    const std::lock_guard lock(mutex_);
    if (current_) {
        status.session = current_->assignment.session;
        status.epoch = current_->assignment.epoch;
        status.shards = current_->assignment.shards;
        if (const auto report = current_->stream->mailbox()->last_report()) {
            status.phase = report->phase;
            status.message = report->message;
            status.loaded_bytes = report->loaded_bytes;
            status.total_bytes = report->total_bytes;
        }
    }
    if (is_draining_) status.phase = ServerPhase::kDraining;
    return status;
}

}  // namespace
}  // namespace control

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& listen,
                                                            const NodeIdentity& self,
                                                            ControlHandler& handler) {
    control::quiet_grpc();
    auto server = std::make_unique<control::Server>(self, handler);
    K3POD_TRY(server->listen(listen));
    return std::unique_ptr<ControlServer>(std::move(server));
}

}  // namespace k3pod
