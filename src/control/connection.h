#pragma once
// One connection of the station to one server: a channel, a stream on it, and its end. Every wait
// has a deadline or ends with the stream.

#include <memory>
#include <optional>
#include <string>

#include "control.grpc.pb.h"
#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod::control {

// One thread uses it; only cancel() is for any thread.
class Connection {
  public:
    explicit Connection(const std::string& address);
    ~Connection();  // Cancels what is left of the stream.
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Each is false when the stream is over; finish() then says why.
    bool open(Nanoseconds timeout);
    bool write(const v1::StationMessage& message, Nanoseconds timeout);
    // A negative timeout waits until the stream ends.
    bool read(v1::ServerMessage& message, Nanoseconds timeout);

    // Ends the stream and tells why it ended, in a few words. Call once, last.
    Status finish();

    // Ends every wait soon.
    void cancel() { context_.TryCancel(); }

  private:
    bool wait_for_operation(Nanoseconds timeout);

    std::unique_ptr<v1::Control::Stub> stub_;
    grpc::ClientContext context_;
    grpc::CompletionQueue queue_;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::StationMessage, v1::ServerMessage>> stream_;
    bool is_open_ = false;
    bool is_late_ = false;  // an operation took longer than its timeout
};

}  // namespace k3pod::control
