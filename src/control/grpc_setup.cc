#include "control/grpc_setup.h"

#include <fmt/format.h>
#include <grpc/support/log.h>

#include <mutex>

#include "k3pod/base/log.h"

namespace k3pod::control {
namespace {

// A peer that is stopped or cut off is found within kKeepaliveTime + kKeepaliveTimeout, on both
// sides. gRPC also makes the timeout the socket's TCP_USER_TIMEOUT.
constexpr int kKeepaliveTimeMs = 1000;
constexpr int kKeepaliveTimeoutMs = 2000;
constexpr int kConnectTimeoutMs = 2000;
// A shard list of the real pod's 82,432 experts, sliced, takes about 1 MiB.
constexpr int kMaxMessageBytes = 64 << 20;

void to_our_log(gpr_log_func_args* args) {
    log::debug(fmt::format("grpc: {} ({}:{})", args->message, args->file, args->line));
}

}  // namespace

void quiet_grpc() {
    static std::once_flag once;
    std::call_once(once, [] { gpr_set_log_function(to_our_log); });
}

grpc::ChannelArguments channel_arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0: no limit.
    // The time that one attempt to connect may take is set by its minimum back-off.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
    // Each attempt dials by itself; a shared subchannel would remember the failure of the last one.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    return arguments;
}

void configure_server(grpc::ServerBuilder& builder) {
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // Never "too many pings".
    // Two servers on one port would share its connections silently.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
}

std::string cause_of(const grpc::Status& status) {
    // "CANCELLED" is all that is left of a stream whose other end was shut down.
    if (status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) {
        return "it ended the connection";
    }
    const std::string& text = status.error_message();
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return text;
    const size_t colon = text.rfind(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace k3pod::control
