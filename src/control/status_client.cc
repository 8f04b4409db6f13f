#include <fmt/format.h>

#include <chrono>

#include "control.grpc.pb.h"
#include "control/convert.h"
#include "control/grpc_setup.h"
#include "k3pod/control/control.h"

namespace k3pod {

Result<NodeStatus> read_node_status(const std::string& address, Nanoseconds timeout) {
    control::quiet_grpc();
    const auto stub = control::v1::Control::NewStub(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), control::channel_arguments()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
    control::v1::StatusReply reply;
    const grpc::Status status = stub->GetStatus(&context, {}, &reply);
    if (status.ok()) return control::from_proto(reply);
    const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return Status(is_late ? Code::kDeadlineExceeded : Code::kUnavailable,
                  fmt::format("no status from {} within {:.1f} s: {}", address, to_seconds(timeout),
                              control::cause_of(status)));
}

}  // namespace k3pod
