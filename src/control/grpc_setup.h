#pragma once
// How this room sets gRPC up, in one place and never from the environment.

#include <grpcpp/grpcpp.h>

#include <string>

namespace k3pod::control {

// gRPC's own lines go to our log at debug level. Once per process; call before the first use.
void quiet_grpc();

// Arguments of a channel that is made for one connection attempt.
grpc::ChannelArguments channel_arguments();

void configure_server(grpc::ServerBuilder& builder);

// Why a call or stream ended, in a few words: "Connection refused". gRPC wraps that into what it
// was doing: "failed to connect to all addresses; last error: UNKNOWN: Failed to connect to remote
// host: Connection refused".
std::string cause_of(const grpc::Status& status);

}  // namespace k3pod::control
