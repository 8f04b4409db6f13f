// Questions that need no session: one call, one answer.

#include <fmt/format.h>

#include <chrono>

#include "control.grpc.pb.h"
#include "control/convert.h"
#include "control/grpc_setup.h"
#include "k3pod/control/control.h"

namespace k3pod {
namespace {

// `call` is one of the stub's; `what` is what was asked for.
template <class Request, class Reply>
Result<Reply> ask(const std::string& address, Nanoseconds timeout, const char* what,
                  grpc::Status (control::v1::Control::Stub::*call)(grpc::ClientContext*,
                                                                   const Request&, Reply*)) {
    control::quiet_grpc();
    const auto stub = control::v1::Control::NewStub(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), control::channel_arguments()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
    Reply reply;
    const grpc::Status status = (*stub.*call)(&context, {}, &reply);
    if (status.ok()) return reply;
    const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return Status(is_late ? Code::kDeadlineExceeded : Code::kUnavailable,
                  fmt::format("no {} from {} within {:.1f} s: {}", what, address,
                              to_seconds(timeout), control::cause_of(status)));
}

}  // namespace

Result<NodeStatus> read_node_status(const std::string& address, Nanoseconds timeout) {
    K3POD_ASSIGN(const auto reply,
                 ask(address, timeout, "status", &control::v1::Control::Stub::GetStatus));
    return control::from_proto(reply);
}

Result<NodeCheck> read_node_check(const std::string& address, Nanoseconds timeout) {
    K3POD_ASSIGN(const auto reply,
                 ask(address, timeout, "check", &control::v1::Control::Stub::Check));
    return control::from_proto(reply);
}

}  // namespace k3pod
