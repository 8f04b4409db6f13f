#include "control/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "k3pod/base/text.h"

namespace k3pod::control {
namespace {

std::string to_bytes(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> from_bytes(const std::string& bytes) {
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    return {begin, begin + bytes.size()};
}

v1::Phase to_proto(ServerPhase phase) {
    switch (phase) {
        case ServerPhase::kLoading:
            return v1::PHASE_LOADING;
        case ServerPhase::kReady:
            return v1::PHASE_READY;
        case ServerPhase::kDraining:
            return v1::PHASE_DRAINING;
        case ServerPhase::kFailed:
            return v1::PHASE_FAILED;
    }
    return v1::PHASE_UNSPECIFIED;
}

// A phase of a newer release counts as loading: not usable yet.
ServerPhase from_proto(v1::Phase phase) {
    if (phase == v1::PHASE_READY) return ServerPhase::kReady;
    if (phase == v1::PHASE_DRAINING) return ServerPhase::kDraining;
    if (phase == v1::PHASE_FAILED) return ServerPhase::kFailed;
    return ServerPhase::kLoading;
}

template <class Message>
void add_shards(const std::vector<Shard>& shards, Message& message) {
    message.mutable_shards()->Reserve(static_cast<int>(shards.size()));
    for (const Shard& shard : shards) {
        v1::Shard& out = *message.add_shards();
        out.set_layer(static_cast<uint32_t>(shard.layer));
        out.set_expert(static_cast<uint32_t>(shard.expert));
        out.set_begin(static_cast<uint32_t>(shard.begin));
        out.set_end(static_cast<uint32_t>(shard.end));
    }
}

template <class Message>
std::vector<Shard> shards_of(const Message& message) {
    std::vector<Shard> shards;
    shards.reserve(static_cast<size_t>(message.shards_size()));
    for (const v1::Shard& shard : message.shards()) {
        shards.push_back({.layer = static_cast<int32_t>(shard.layer()),
                          .expert = static_cast<int32_t>(shard.expert()),
                          .begin = static_cast<int32_t>(shard.begin()),
                          .end = static_cast<int32_t>(shard.end())});
    }
    return shards;
}

// What no model can have; whether the experts exist is for whoever loads them.
Status check_shard(const v1::Shard& shard) {
    constexpr uint32_t kMaxIndex = std::numeric_limits<uint16_t>::max();
    constexpr uint32_t kMaxWidth = std::numeric_limits<int32_t>::max();
    const bool is_sane = shard.layer() <= kMaxIndex && shard.expert() <= kMaxIndex &&
                         shard.begin() < shard.end() && shard.end() <= kMaxWidth;
    if (is_sane) return Status::ok();
    return invalid_argument(fmt::format(
        "assignment: shard of layer {}, expert {} is [{}, {}), expected begin below end, and layer "
        "and expert up to {}",
        shard.layer(), shard.expert(), shard.begin(), shard.end(), kMaxIndex));
}

v1::Verdict to_proto(Verdict verdict) {
    switch (verdict) {
        case Verdict::kOk:
            return v1::VERDICT_OK;
        case Verdict::kWarning:
            return v1::VERDICT_WARNING;
        case Verdict::kFailure:
            return v1::VERDICT_FAILURE;
    }
    return v1::VERDICT_UNSPECIFIED;
}

std::optional<Verdict> from_proto(v1::Verdict verdict) {
    if (verdict == v1::VERDICT_OK) return Verdict::kOk;
    if (verdict == v1::VERDICT_WARNING) return Verdict::kWarning;
    if (verdict == v1::VERDICT_FAILURE) return Verdict::kFailure;
    return std::nullopt;
}

Code code_from_number(uint32_t number) {
    const auto last = static_cast<uint32_t>(Code::kInternal);
    if (number == 0 || number > last) return Code::kFailedPrecondition;
    return static_cast<Code>(number);
}

}  // namespace

v1::Identity to_proto(const NodeIdentity& identity) {
    v1::Identity out;
    out.set_node(identity.node);
    out.set_build_id(identity.build_id);
    out.set_control_version(identity.control_version);
    out.set_wire_version(identity.wire_version);
    out.set_transport(identity.transport);
    out.set_ucx_version(identity.ucx_version);
    out.set_model_fingerprint(identity.model_fingerprint);
    out.set_process_id(identity.process_id);
    return out;
}

NodeIdentity from_proto(const v1::Identity& identity) {
    return {.node = identity.node(),
            .build_id = identity.build_id(),
            .control_version = identity.control_version(),
            .wire_version = identity.wire_version(),
            .transport = identity.transport(),
            .ucx_version = identity.ucx_version(),
            .model_fingerprint = identity.model_fingerprint(),
            .process_id = identity.process_id()};
}

v1::Assignment to_proto(const Assignment& assignment) {
    v1::Assignment out;
    out.set_session(assignment.session);
    out.set_epoch(assignment.epoch);
    out.set_node_index(assignment.node_index);
    out.set_max_rows(static_cast<uint32_t>(assignment.max_rows));
    add_shards(assignment.shards, out);
    out.set_station_address(to_bytes(assignment.station_address));
    if (const StagingOffer& offer = assignment.staging; !offer.address.empty()) {
        v1::StagingOffer& staging = *out.mutable_staging();
        staging.set_address(to_bytes(offer.address));
        staging.set_model_config(offer.model_config);
        staging.set_release(offer.release);
        staging.mutable_stamps()->Add(offer.stamps.begin(), offer.stamps.end());
    }
    return out;
}

Result<Assignment> from_proto(const v1::Assignment& assignment) {
    constexpr uint32_t kMaxU16 = std::numeric_limits<uint16_t>::max();
    if (assignment.session() == 0) {
        return invalid_argument("assignment: session is 0, expected a random number");
    }
    if (assignment.node_index() > kMaxU16) {
        return invalid_argument(fmt::format("assignment: node_index is {}, expected up to {}",
                                            assignment.node_index(), kMaxU16));
    }
    if (assignment.max_rows() == 0 || assignment.max_rows() > kMaxU16) {
        return invalid_argument(fmt::format("assignment: max_rows is {}, expected 1 to {}",
                                            assignment.max_rows(), kMaxU16));
    }
    for (const v1::Shard& shard : assignment.shards()) K3POD_TRY(check_shard(shard));
    const v1::StagingOffer& offer = assignment.staging();
    if (assignment.has_staging() && offer.stamps_size() != assignment.shards_size()) {
        return invalid_argument(fmt::format("assignment: {} stamps for {} shards, expected as many",
                                            offer.stamps_size(), assignment.shards_size()));
    }
    return Assignment{.session = assignment.session(),
                      .epoch = assignment.epoch(),
                      .node_index = static_cast<uint16_t>(assignment.node_index()),
                      .max_rows = static_cast<int32_t>(assignment.max_rows()),
                      .shards = shards_of(assignment),
                      .station_address = from_bytes(assignment.station_address()),
                      .staging = {.address = from_bytes(offer.address()),
                                  .model_config = offer.model_config(),
                                  .release = offer.release(),
                                  .stamps = {offer.stamps().begin(), offer.stamps().end()}}};
}

v1::Report to_proto(const ServerReport& report) {
    v1::Report out;
    out.set_phase(to_proto(report.phase));
    out.set_loaded_bytes(report.loaded_bytes);
    out.set_total_bytes(report.total_bytes);
    out.set_data_address(to_bytes(report.data_address));
    out.set_message(report.message);
    return out;
}

ServerReport from_proto(const v1::Report& report) {
    return {.phase = from_proto(report.phase()),
            .loaded_bytes = report.loaded_bytes(),
            .total_bytes = report.total_bytes(),
            .data_address = from_bytes(report.data_address()),
            .message = report.message()};
}

v1::StatusReply to_proto(const NodeStatus& status) {
    v1::StatusReply out;
    *out.mutable_identity() = to_proto(status.identity);
    out.set_phase(to_proto(status.phase));
    out.set_session(status.session);
    out.set_epoch(status.epoch);
    add_shards(status.shards, out);
    out.set_shard_bytes(status.shard_bytes);
    out.set_num_frames(status.num_frames);
    out.set_message(status.message);
    out.set_loaded_bytes(status.loaded_bytes);
    out.set_total_bytes(status.total_bytes);
    out.set_load_bytes_per_s(status.load_bytes_per_s);
    return out;
}

NodeStatus from_proto(const v1::StatusReply& reply) {
    return {.identity = from_proto(reply.identity()),
            .phase = from_proto(reply.phase()),
            .session = reply.session(),
            .epoch = reply.epoch(),
            .shards = shards_of(reply),
            .shard_bytes = reply.shard_bytes(),
            .num_frames = reply.num_frames(),
            .message = reply.message(),
            .loaded_bytes = reply.loaded_bytes(),
            .total_bytes = reply.total_bytes(),
            .load_bytes_per_s = reply.load_bytes_per_s()};
}

v1::CheckReply to_proto(const NodeCheck& check) {
    v1::CheckReply out;
    *out.mutable_identity() = to_proto(check.identity);
    out.set_unix_time_ns(check.unix_time_ns);
    for (const CheckLine& line : check.lines) {
        v1::CheckLine& added = *out.add_lines();
        added.set_verdict(to_proto(line.verdict));
        // What drivers and files say need not be the UTF-8 that protobuf insists on.
        added.set_check(escape_controls(line.check));
        added.set_found(escape_controls(line.found));
        added.set_expected(escape_controls(line.expected));
        added.set_remedy(escape_controls(line.remedy));
    }
    return out;
}

Result<NodeCheck> from_proto(const v1::CheckReply& reply) {
    NodeCheck check{.identity = from_proto(reply.identity()),
                    .unix_time_ns = reply.unix_time_ns(),
                    .lines = {}};
    for (const v1::CheckLine& line : reply.lines()) {
        const auto verdict = from_proto(line.verdict());
        if (!verdict) {
            return data_loss(fmt::format("check '{}' of {} has the verdict {}, expected 1 to 3",
                                         line.check(), check.identity.node,
                                         static_cast<int>(line.verdict())));
        }
        check.lines.push_back({.check = line.check(),
                               .verdict = *verdict,
                               .found = line.found(),
                               .expected = line.expected(),
                               .remedy = line.remedy()});
    }
    return check;
}

v1::HelloReply to_proto(const NodeIdentity& server, const Status& refusal) {
    v1::HelloReply out;
    *out.mutable_server() = to_proto(server);
    if (!refusal.is_ok()) {
        out.set_refusal(refusal.message());
        out.set_refusal_code(static_cast<uint32_t>(refusal.code()));
    }
    return out;
}

Status refusal_of(const v1::HelloReply& reply) {
    if (reply.refusal().empty() && reply.refusal_code() == 0) return Status::ok();
    return {code_from_number(reply.refusal_code()), reply.refusal()};
}

}  // namespace k3pod::control

namespace k3pod {

const char* server_phase_name(ServerPhase phase) {
    switch (phase) {
        case ServerPhase::kLoading:
            return "loading";
        case ServerPhase::kReady:
            return "ready";
        case ServerPhase::kDraining:
            return "draining";
        case ServerPhase::kFailed:
            return "failed";
    }
    return "unknown";
}

}  // namespace k3pod
