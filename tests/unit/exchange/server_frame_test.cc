// What an expert server answers to frames, good and hostile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/server_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::Each;

class ExchangeFrame : public ::testing::Test {
  protected:
    void SetUp() override { rig_.start(); }
    // The server still works: nothing before has stopped or confused it.
    void expect_good_answer(uint64_t step, size_t count) {
        rig_.deliver(ServerRig::request(step));
        const ScriptedMessage reply = rig_.reply(count);
        EXPECT_EQ(reply.header.step, step);
        EXPECT_EQ(reply.header.status, wire::FrameStatus::kOk);
    }

    ServerRig rig_;
};

TEST_F(ExchangeFrame, is_answered_with_its_rows_and_identity) {
    ScriptedRequest request = ServerRig::request(9);
    request.header.attempt = 2;
    request.seal();
    rig_.deliver(request);
    const ScriptedMessage reply = rig_.reply();
    EXPECT_TRUE(wire::decode_header(std::as_bytes(std::span(&reply.header, 1))).is_ok());
    EXPECT_TRUE(wire::check_reply(reply.header, reply.payload, kFakeLimits).is_ok());
    EXPECT_EQ(reply.header.status, wire::FrameStatus::kOk);
    EXPECT_EQ(reply.header.session, 77u);
    EXPECT_EQ(reply.header.epoch, 5u);
    EXPECT_EQ(reply.header.layer, 2);
    EXPECT_EQ(reply.header.rows, 1);
    EXPECT_EQ(reply.header.step, 9u);
    EXPECT_EQ(reply.header.node, 1);
    EXPECT_EQ(reply.header.attempt, 2);
    EXPECT_EQ(reply.header.sent_ns, 1234u);
    EXPECT_EQ(reply.header.flags, wire::kFlagPayloadChecked);
    std::vector<uint16_t> bits(8);
    ASSERT_EQ(reply.payload.size(), 16u);
    std::memcpy(bits.data(), reply.payload.data(), 16);
    EXPECT_THAT(bits, Each(0x4100));  // bf16 8
    EXPECT_EQ(rig_.server->num_frames(), 1u);
}

TEST_F(ExchangeFrame, is_answered_in_fp32_where_it_asks_for_that) {
    ScriptedRequest request = ServerRig::request();
    request.header.flags |= wire::kFlagReplyF32;
    request.seal();
    rig_.deliver(request);
    const ScriptedMessage reply = rig_.reply();
    EXPECT_EQ(reply.header.flags, wire::kFlagPayloadChecked | wire::kFlagReplyF32);
    std::vector<float> values(8);
    ASSERT_EQ(reply.payload.size(), 32u);
    std::memcpy(values.data(), reply.payload.data(), 32);
    EXPECT_THAT(values, Each(8.0f));
}

TEST_F(ExchangeFrame, of_an_unknown_session_is_dropped_and_never_answered) {
    ScriptedRequest request = ServerRig::request(1);
    request.header.session = 78;
    request.seal();
    rig_.deliver(request);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"session\"", 1));
    expect_good_answer(2, 1);
    EXPECT_EQ(rig_.wire.num_sent(wire::FrameKind::kRefuse), 0u);
    EXPECT_EQ(rig_.gate.num_arrived(), 1);
}

TEST_F(ExchangeFrame, of_another_epoch_is_refused_by_number) {
    ScriptedRequest request = ServerRig::request();
    request.header.epoch = 6;
    request.seal();
    rig_.deliver(request);
    const ScriptedMessage refusal = rig_.refusal();
    EXPECT_EQ(refusal.header.status, wire::FrameStatus::kWrongEpoch);
    EXPECT_EQ(refusal.header.epoch, 6u);
    EXPECT_TRUE(refusal.payload.empty());
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_refused_total", "reason=\"wrong_epoch\"", 1));
    EXPECT_EQ(rig_.gate.num_arrived(), 0);
}

TEST_F(ExchangeFrame, for_an_expert_that_is_not_held_is_refused) {
    rig_.deliver(ServerRig::request(1, 4));  // even experts are at node 0
    EXPECT_EQ(rig_.reply().header.status, wire::FrameStatus::kNotMyShard);
    EXPECT_TRUE(rig_.reply().payload.empty());
    expect_good_answer(2, 2);
}

TEST_F(ExchangeFrame, whose_work_fails_is_answered_as_a_fault) {
    rig_.fault = internal_error("no scratch");
    rig_.deliver(ServerRig::request(1));
    EXPECT_EQ(rig_.reply().header.status, wire::FrameStatus::kFault);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_refused_total", "reason=\"fault\"", 1));
    EXPECT_EQ(rig_.server->num_frames(), 0u);
}

struct Hostile {
    const char* name;
    ScriptedRequest (*make)();
};

class ExchangeHostileFrame : public ExchangeFrame, public ::testing::WithParamInterface<Hostile> {};

TEST_P(ExchangeHostileFrame, is_refused_and_counted_without_any_work) {
    rig_.deliver(GetParam().make());
    EXPECT_EQ(rig_.refusal().header.status, wire::FrameStatus::kBadFrame);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_refused_total", "reason=\"bad_frame\"", 1));
    EXPECT_EQ(rig_.gate.num_arrived(), 0);
    expect_good_answer(50, 1);
}

ScriptedRequest with_header(void (*change)(wire::FrameHeader& header)) {
    ScriptedRequest request = ServerRig::request();
    change(request.header);
    request.seal();
    return request;
}
ScriptedRequest with_entry(wire::WireEntry entry) {
    return ServerRig::with_entries(ServerRig::request(), {entry});
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeHostileFrame,
    ::testing::Values(
        Hostile{"expert_896", [] { return with_entry({.row = 0, .expert = 896, .weight = 1}); }},
        Hostile{"expert_65535",
                [] { return with_entry({.row = 0, .expert = 65535, .weight = 1}); }},
        Hostile{"row_past_the_end",
                [] { return with_entry({.row = 1, .expert = 3, .weight = 1}); }},
        Hostile{"weight_nan",
                [] { return with_entry({.row = 0, .expert = 3, .weight = std::nanf("")}); }},
        Hostile{"rows_beyond_the_payload",
                [] { return with_header([](wire::FrameHeader& h) { h.rows = 2; }); }},
        Hostile{"rows_over_the_assignment",
                [] {
                    ScriptedRequest request = ServerRig::request();
                    request.header.rows = 5;  // the node has room for 6, the station announced 4
                    return ServerRig::with_entries(request, {{.row = 0, .expert = 3, .weight = 1}});
                }},
        Hostile{"no_rows", [] { return with_header([](wire::FrameHeader& h) { h.rows = 0; }); }},
        Hostile{"layer_65535",
                [] { return with_header([](wire::FrameHeader& h) { h.layer = 65535; }); }},
        Hostile{"entries_over_the_payload",
                [] { return with_header([](wire::FrameHeader& h) { h.entries = 0xffffffff; }); }},
        Hostile{"payload_of_another_size",
                [] { return with_header([](wire::FrameHeader& h) { h.payload_bytes = 1; }); }},
        Hostile{"node", [] { return with_header([](wire::FrameHeader& h) { h.node = 0; }); }},
        Hostile{"entries_twice",
                [] {
                    const wire::WireEntry entry{.row = 0, .expert = 3, .weight = 1};
                    return ServerRig::with_entries(ServerRig::request(), {entry, entry});
                }},
        Hostile{"damaged_payload",
                [] {
                    ScriptedRequest request = ServerRig::request();
                    request.payload[3] ^= std::byte{1};
                    return request;
                }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ExchangeFrame, of_random_bytes_is_dropped) {
    std::minstd_rand random(3);
    constexpr int kMessages = 500;
    for (int i = 0; i < kMessages; ++i) {
        std::vector<std::byte> header(64);
        for (std::byte& b : header) b = static_cast<std::byte>(random());
        rig_.wire.deliver_bytes(header, header);
    }
    EXPECT_TRUE(
        rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"corrupt\"", kMessages));
    expect_good_answer(1, 1);
}

TEST_F(ExchangeFrame, of_a_kind_that_no_station_sends_is_dropped) {
    ScriptedRequest request = ServerRig::request();
    request.header.kind = wire::FrameKind::kBulkChunk;
    request.seal();
    rig_.deliver(request);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"foreign\"", 1));
    expect_good_answer(1, 1);
}

TEST_F(ExchangeFrame, is_counted_by_rows_and_entries) {
    rig_.deliver(ServerRig::with_entries(
        ServerRig::request(),
        {{.row = 0, .expert = 1, .weight = 1}, {.row = 0, .expert = 3, .weight = 1}}));
    ASSERT_EQ(rig_.reply().header.status, wire::FrameStatus::kOk);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_frames_total", "", 1));
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_frame_rows_total", "", 1));
    EXPECT_TRUE(rig_.has_metric("k3pod_experts_entries_total", "layer=\"2\"", 2));
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_frame_seconds_count", "", 1));
}

}  // namespace
}  // namespace k3pod
