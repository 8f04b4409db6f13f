// The station's end: one thread per server that dials, says hello, and listens until told to stop.

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "control/connection.h"
#include "control/convert.h"
#include "control/grpc_setup.h"
#include "control/identity.h"
#include "k3pod/control/control.h"

namespace k3pod {
namespace control {
namespace {

constexpr Nanoseconds kFirstBackoff = std::chrono::milliseconds(100);
constexpr Nanoseconds kLastBackoff = std::chrono::milliseconds(500);
// To connect and to be answered. A server that ends its last session first may take 5 s for that.
constexpr Nanoseconds kHelloTimeout = std::chrono::seconds(8);
constexpr Nanoseconds kUntilStreamEnds{-1};

uint64_t random_session() {
    std::random_device device;
    const uint64_t high = device();
    const uint64_t session = high << 32 | device();
    return session != 0 ? session : 1;
}

class Link final : public ControlLink {
  public:
    Link(const std::string& address, const std::string& node, const NodeIdentity& self,
         Assignment assignment, ControlEvents& events)
        : address_(address),
          node_(node),
          self_(self),
          assignment_(std::move(assignment)),
          events_(events),
          thread_([this] { run(); }) {}
    ~Link() override;

    void reconnect(const Status& why) override;

  private:
    void run();
    void run_connection(Connection& connection);
    Result<NodeIdentity> say_hello(Connection& connection);
    bool assign(Connection& connection);
    void listen(Connection& connection);
    Status why_closed(Connection& connection, const std::string& consequence);
    std::string not_reachable() const {
        return fmt::format("{} is not reachable at {}", node_, address_);
    }
    void report_waiting(const Status& why);
    void adopt(Connection* connection);
    bool is_stopping_or_wait(Nanoseconds timeout);

    const std::string address_, node_;
    const NodeIdentity self_;
    // The link thread's own.
    Assignment assignment_;
    ControlEvents& events_;
    Nanoseconds backoff_ = kFirstBackoff;
    std::string last_waiting_;

    std::mutex mutex_;
    std::condition_variable stopped_;
    bool is_stopping_ = false;
    Connection* connection_ = nullptr;        // while there is one to cancel
    std::optional<Status> reconnect_reason_;  // why it was cancelled, when reconnect() did it

    std::thread thread_;  // Last: it uses what is above.
};

Link::~Link() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        if (connection_ != nullptr) connection_->cancel();
        stopped_.notify_all();
    }
    thread_.join();
}

void Link::reconnect(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (connection_ == nullptr || reconnect_reason_) return;
    reconnect_reason_ = why;
    connection_->cancel();
}

void Link::run() {
    while (true) {
        {
            Connection connection(address_);
            adopt(&connection);
            run_connection(connection);
            adopt(nullptr);
        }
        if (is_stopping_or_wait(backoff_)) return;
        backoff_ = std::min(2 * backoff_, kLastBackoff);
    }
}

void Link::adopt(Connection* connection) {
    const std::lock_guard lock(mutex_);
    connection_ = connection;
    reconnect_reason_.reset();
    if (is_stopping_ && connection != nullptr) connection->cancel();
}

bool Link::is_stopping_or_wait(Nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return stopped_.wait_for(lock, timeout, [&] { return is_stopping_; });
}

void Link::run_connection(Connection& connection) {
    const Result<NodeIdentity> server = say_hello(connection);
    if (!server.is_ok()) return report_waiting(server.status());
    if (!assign(connection)) return report_waiting(why_closed(connection, not_reachable()));
    backoff_ = kFirstBackoff;
    last_waiting_.clear();
    events_.on_connected(node_, *server);
    listen(connection);
    const Status why = why_closed(connection, node_ + " is gone");
    if (!is_stopping_or_wait(Nanoseconds{0})) events_.on_lost(node_, why);
}

Result<NodeIdentity> Link::say_hello(Connection& connection) {
    v1::StationMessage hello;
    *hello.mutable_hello()->mutable_station() = to_proto(self_);
    hello.mutable_hello()->set_wanted_node(node_);
    v1::ServerMessage answer;
    const bool is_answered = connection.open(kHelloTimeout) &&
                             connection.write(hello, kHelloTimeout) &&
                             connection.read(answer, kHelloTimeout);
    if (!is_answered) return why_closed(connection, not_reachable());
    const NodeIdentity server = from_proto(answer.hello_reply().server());
    if (const Status refusal = refusal_of(answer.hello_reply()); !refusal.is_ok()) {
        return refusal.with_context(fmt::format("{} at {} refused", node_, address_));
    }
    // A server of another release may be less strict than we are.
    if (const Status differs = check_same_release(self_, server); !differs.is_ok()) {
        return differs.with_context(fmt::format("{} at {}", node_, address_));
    }
    return server;
}

bool Link::assign(Connection& connection) {
    assignment_.session = random_session();
    v1::StationMessage message;
    *message.mutable_assignment() = to_proto(assignment_);
    return connection.write(message, kHelloTimeout);
}

void Link::listen(Connection& connection) {
    v1::ServerMessage message;
    while (connection.read(message, kUntilStreamEnds)) {
        if (!message.has_report()) continue;
        const ServerReport report = from_proto(message.report());
        events_.on_report(node_, assignment_.session, report);
        // Hanging up tells the server that its word has arrived.
        if (report.phase == ServerPhase::kDraining) reconnect(unavailable(node_ + " is draining"));
    }
}

Status Link::why_closed(Connection& connection, const std::string& consequence) {
    const Status closed = connection.finish();
    {
        const std::lock_guard lock(mutex_);
        if (reconnect_reason_) return *reconnect_reason_;
    }
    return closed.with_context(consequence);
}

void Link::report_waiting(const Status& why) {
    if (is_stopping_or_wait(Nanoseconds{0}) || why.message() == last_waiting_) return;
    last_waiting_ = why.message();
    events_.on_waiting(node_, why);
}

}  // namespace
}  // namespace control

std::unique_ptr<ControlLink> ControlLink::start(const std::string& address, const std::string& node,
                                                const NodeIdentity& self, Assignment assignment,
                                                ControlEvents& events) {
    control::quiet_grpc();
    return std::make_unique<control::Link>(address, node, self, std::move(assignment), events);
}

}  // namespace k3pod
