#include "control/connection.h"

#include "control/grpc_setup.h"

namespace k3pod::control {
namespace {

gpr_timespec deadline_in(Nanoseconds timeout) {
    if (timeout.count() < 0) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN));
}

Code code_of(grpc::StatusCode code) {
    if (code == grpc::StatusCode::INVALID_ARGUMENT) return Code::kInvalidArgument;
    if (code == grpc::StatusCode::UNIMPLEMENTED) return Code::kUnimplemented;
    return Code::kUnavailable;
}

}  // namespace

Connection::Connection(const std::string& address)
    : stub_(v1::Control::NewStub(grpc::CreateCustomChannel(
          address, grpc::InsecureChannelCredentials(), channel_arguments()))) {}

Connection::~Connection() {
    if (is_open_) static_cast<void>(finish());
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
}

bool Connection::open(Nanoseconds timeout) {
    stream_ = stub_->PrepareAsyncSession(&context_, &queue_);
    is_open_ = true;
    stream_->StartCall(this);
    return wait_for_operation(timeout);
}

bool Connection::write(const v1::StationMessage& message, Nanoseconds timeout) {
    stream_->Write(message, this);
    return wait_for_operation(timeout);
}

bool Connection::read(v1::ServerMessage& message, Nanoseconds timeout) {
    stream_->Read(&message, this);
    return wait_for_operation(timeout);
}

Status Connection::finish() {
    is_open_ = false;
    cancel();
    grpc::Status status;
    stream_->Finish(&status, this);
    wait_for_operation(Nanoseconds{-1});
    if (is_late_) return deadline_exceeded("no answer in time");
    return {code_of(status.error_code()), cause_of(status)};
}

// One operation is under way at a time, so whatever comes out of the queue is it.
bool Connection::wait_for_operation(Nanoseconds timeout) {
    void* tag = nullptr;
    bool ok = false;
    const auto next = queue_.AsyncNext(&tag, &ok, deadline_in(timeout));
    if (next == grpc::CompletionQueue::GOT_EVENT) return ok;
    is_late_ = true;
    cancel();  // The operation now ends by itself; its memory is ours again when it has.
    queue_.Next(&tag, &ok);
    return false;
}

}  // namespace k3pod::control
