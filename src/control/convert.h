#pragma once
// Between the structs of control.h and the messages of proto/control.proto. What comes from a
// message is checked here.

#include "control.pb.h"
#include "k3pod/base/status.h"
#include "k3pod/control/control.h"

namespace k3pod::control {

v1::Identity to_proto(const NodeIdentity& identity);
v1::Assignment to_proto(const Assignment& assignment);
v1::Report to_proto(const ServerReport& report);
v1::StatusReply to_proto(const NodeStatus& status);
v1::CheckReply to_proto(const NodeCheck& check);
// `refusal` may be ok.
v1::HelloReply to_proto(const NodeIdentity& server, const Status& refusal);

NodeIdentity from_proto(const v1::Identity& identity);
// kInvalidArgument names the field and its limit.
Result<Assignment> from_proto(const v1::Assignment& assignment);
ServerReport from_proto(const v1::Report& report);
NodeStatus from_proto(const v1::StatusReply& reply);
// kDataLoss when a line has no verdict.
Result<NodeCheck> from_proto(const v1::CheckReply& reply);
// The refusal in a reply; ok when the station is welcome.
Status refusal_of(const v1::HelloReply& reply);

}  // namespace k3pod::control
