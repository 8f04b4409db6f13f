#pragma once
// How this room sets gRPC up, in one place and never from the environment.

#include <grpcpp/grpcpp.h>

namespace k3pod::control {

// gRPC's own lines go to our log at debug level. Once per process; call before the first use.
void quiet_grpc();

// Arguments of a channel that is made for one connection attempt.
grpc::ChannelArguments channel_arguments();

void configure_server(grpc::ServerBuilder& builder);

}  // namespace k3pod::control
