// What the station sends, and what it refuses to send.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/client_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MATCHER_P3(IsEntry, row, expert, weight, "") {
    return arg.row == row && arg.expert == expert && arg.weight == weight;
}

// Expert e of every layer is whole at holder e mod 2.
Placement two_servers() {
    return fake_placement({"spark-1", "spark-2"}, false);
}

TEST(ExchangeDispatch, sends_each_holder_the_rows_that_touch_it_and_nothing_else) {
    ClientRig rig(two_servers());
    rig.start();
    // spark-1 holds the even experts: rows 0, 2 and 3; spark-2 the odd ones: rows 0, 1 and 3.
    rig.dispatch(fake_step({{6, 1}, {3, 1}, {2, 6}, {1, 0}}, 9, 2));
    const ScriptedMessage even = rig.request(1), odd = rig.request(2);

    EXPECT_EQ(even.header.rows, 3);
    EXPECT_THAT(latents_of(even), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3,  // row 0
                                              2, 3, 0, 1, 2, 3, 0, 1,  // row 2
                                              3, 0, 1, 2, 3, 0, 1, 2));
    EXPECT_THAT(entries_of(even), ElementsAre(IsEntry(2, 0, 0.25f), IsEntry(1, 2, 0.5f),
                                              IsEntry(0, 6, 0.5f), IsEntry(1, 6, 0.25f)));
    EXPECT_EQ(odd.header.rows, 3);
    EXPECT_THAT(entries_of(odd), ElementsAre(IsEntry(0, 1, 0.25f), IsEntry(1, 1, 0.25f),
                                             IsEntry(2, 1, 0.5f), IsEntry(1, 3, 0.5f)));
}

TEST(ExchangeDispatch, fills_every_field_of_the_header) {
    ClientRig rig(two_servers());
    rig.options.reply_f32 = true;
    rig.start();
    rig.dispatch(fake_step({{1, 3}}, 9, 2));
    const ScriptedMessage sent = rig.request();
    EXPECT_TRUE(wire::decode_header(std::as_bytes(std::span(&sent.header, 1))).is_ok());
    EXPECT_TRUE(wire::check_request(sent.header, sent.payload, kFakeLimits).is_ok());
    EXPECT_EQ(sent.header.kind, wire::FrameKind::kRequest);
    EXPECT_EQ(sent.header.flags, wire::kFlagPayloadChecked | wire::kFlagReplyF32);
    EXPECT_EQ(sent.header.session, 11u);
    EXPECT_EQ(sent.header.epoch, 5u);
    EXPECT_EQ(sent.header.layer, 2);
    EXPECT_EQ(sent.header.step, 9u);
    EXPECT_EQ(sent.header.entries, 2u);
    EXPECT_EQ(sent.header.payload_bytes, 8u * 2 + 2 * 8);
    EXPECT_EQ(sent.header.attempt, 0);
    EXPECT_EQ(sent.header.node, 1);
    EXPECT_NE(sent.header.sent_ns, 0u);
}

TEST(ExchangeDispatch, sends_a_slice_holder_every_pick) {
    ClientRig rig(fake_placement({"spark-1", "spark-2"}, true));
    rig.start();
    rig.dispatch(fake_step({{6, 1}}));
    EXPECT_THAT(entries_of(rig.request(1)), ElementsAre(IsEntry(0, 1, 0.25f), IsEntry(0, 6, 0.5f)));
    EXPECT_THAT(entries_of(rig.request(2)), ElementsAre(IsEntry(0, 1, 0.25f), IsEntry(0, 6, 0.5f)));
}

TEST(ExchangeDispatch, sends_one_entry_to_a_holder_of_two_slices) {
    Placement placement = fake_placement({"spark-1", "spark-2"}, false);
    placement.slices[6] = {{.begin = 0, .end = 32, .holder = 0},
                           {.begin = 32, .end = 64, .holder = 1},
                           {.begin = 64, .end = 128, .holder = 0}};
    ClientRig rig(placement);
    rig.start();
    rig.dispatch(fake_step({{6, 0}}));
    EXPECT_THAT(entries_of(rig.request(1)), ElementsAre(IsEntry(0, 0, 0.25f), IsEntry(0, 6, 0.5f)));
    EXPECT_THAT(entries_of(rig.request(2)), ElementsAre(IsEntry(0, 6, 0.5f)));
}

TEST(ExchangeDispatch, sends_nothing_to_an_idle_holder) {
    ClientRig rig(two_servers());
    rig.start();
    const FakeStep step = fake_step({{0, 2}});
    rig.dispatch(step);
    auto sum = rig.combine(step);
    const ScriptedReply reply = make_reply(rig.request(), 1.0f);
    rig.wire.deliver(reply.header, reply.payload);
    EXPECT_TRUE(sum.get().is_ok());
    EXPECT_EQ(rig.wire.num_sent(wire::FrameKind::kRequest), 1u);
}

TEST(ExchangeDispatch, names_a_holder_that_is_not_there_and_sends_nothing) {
    ClientRig rig(two_servers());
    rig.start();
    rig.client->detach("spark-2", unavailable("spark-2 is draining"));
    EXPECT_THAT(rig.client->missing(), ElementsAre("spark-2"));
    const Status sent = rig.client->dispatch(fake_step({{0, 1}}).rows());
    EXPECT_EQ(sent.code(), Code::kUnavailable);
    EXPECT_EQ(sent.message(), "spark-2 is draining");
    EXPECT_EQ(rig.wire.num_sent(wire::FrameKind::kRequest), 0u);
    // A step that does not need it goes on.
    EXPECT_TRUE(rig.client->dispatch(fake_step({{0, 2}}).rows()).is_ok());
}

TEST(ExchangeDispatch, numbers_a_repeated_step_anew) {
    ClientRig rig(two_servers());
    rig.start();
    rig.dispatch(fake_step({{0, 2}}, 4, 3));
    rig.dispatch(fake_step({{0, 2}}, 4, 3));
    rig.dispatch(fake_step({{0, 2}}, 5, 1));
    EXPECT_EQ(rig.request(1).header.step, 4u);
    EXPECT_EQ(rig.request(2).header.step, 5u);
    EXPECT_EQ(rig.request(3).header.step, 6u);
}

TEST(ExchangeDispatch, does_not_touch_memory_that_an_abandoned_send_still_reads) {
    ClientRig rig(two_servers());
    rig.options.frame_deadline = std::chrono::milliseconds(100);
    rig.start();
    rig.wire.hold_sends(true);
    rig.dispatch(fake_step({{0, 2}}, 1));
    rig.dispatch(fake_step({{0, 4}}, 2));
    const Status third = rig.client->dispatch(fake_step({{0, 6}}, 3).rows());
    EXPECT_EQ(third.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(third.message(), HasSubstr("sends to spark-1 did not complete within 0.10 s"));
    rig.wire.hold_sends(false);
    rig.dispatch(fake_step({{0, 6}}, 4));
    EXPECT_EQ(rig.request(3).header.step, 4u);
}

struct BadRows {
    const char* name;
    void (*change)(FakeStep& step, RoutedRows& rows);
    const char* expected;
};

class ExchangeRefusal : public ::testing::TestWithParam<BadRows> {};

TEST_P(ExchangeRefusal, of_rows_names_what_is_wrong_and_the_next_dispatch_works) {
    ClientRig rig(two_servers());
    rig.start();
    FakeStep step = fake_step({{0, 1}, {2, 3}});
    RoutedRows rows = step.rows();
    GetParam().change(step, rows);
    const Status sent = rig.client->dispatch(rows);
    EXPECT_EQ(sent.code(), Code::kInvalidArgument);
    EXPECT_THAT(sent.message(), HasSubstr(GetParam().expected));
    EXPECT_EQ(rig.wire.num_sent(wire::FrameKind::kRequest), 0u);
    std::vector<float> out(16);
    EXPECT_EQ(rig.client->combine(out).code(), Code::kFailedPrecondition);
    rig.dispatch(fake_step({{0, 1}}));
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeRefusal,
    ::testing::Values(
        BadRows{"expert", [](FakeStep& s, RoutedRows&) { s.experts[3] = 8; },
                "pick 1 of row 1 is expert 8 with weight 0.25; expected an expert below 8"},
        BadRows{"nan_weight", [](FakeStep& s, RoutedRows&) { s.weights[0] = std::nanf(""); },
                "pick 0 of row 0 is expert 0 with weight nan"},
        BadRows{
            "infinite_weight",
            [](FakeStep& s, RoutedRows&) { s.weights[2] = std::numeric_limits<float>::infinity(); },
            "pick 0 of row 1 is expert 2 with weight inf"},
        BadRows{"repeat", [](FakeStep& s, RoutedRows&) { s.experts[3] = 2; },
                "row 1 picks expert 2 twice"},
        BadRows{"rows", [](FakeStep&, RoutedRows& r) { r.rows = 7; },
                "7 rows, the exchange has room for 6"},
        BadRows{"layer", [](FakeStep&, RoutedRows& r) { r.layer = 0; }, "layer 0 has no experts"},
        BadRows{"layer_past_the_end", [](FakeStep&, RoutedRows& r) { r.layer = 4; },
                "layer 4 has no experts"},
        BadRows{"latent", [](FakeStep&, RoutedRows& r) { r.latent = 4; },
                "latent is 4, expected 8"},
        BadRows{"top_k", [](FakeStep&, RoutedRows& r) { r.top_k = 3; },
                "top_k is 3, expected 1 to 2"},
        BadRows{"few_experts", [](FakeStep&, RoutedRows& r) { r.experts = r.experts.first(3); },
                "the number of experts is 3, expected 4"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ExchangeClientCreate, refuses_a_placement_with_an_expert_that_nobody_holds) {
    Placement placement = two_servers();
    placement.slices[8 + 3].clear();  // layer 2, expert 3
    ScriptedWire wire;
    MetricsRegistry metrics;
    const SteadyClock clock;
    ExchangeOptions options;
    options.limits = kFakeLimits;
    const auto client = ExchangeClient::create(options, placement, wire.factory(), FrameWork{},
                                               clock, metrics, nullptr);
    ASSERT_FALSE(client.is_ok());
    EXPECT_THAT(client.status().message(), HasSubstr("expert 3 of layer 2 has no holder"));
}

TEST(ExchangeClientCreate, refuses_a_station_with_shards_and_no_experts) {
    ScriptedWire wire;
    MetricsRegistry metrics;
    const SteadyClock clock;
    ExchangeOptions options;
    options.limits = kFakeLimits;
    const auto client =
        ExchangeClient::create(options, fake_placement({"station", "spark-1"}, true),
                               wire.factory(), FrameWork{}, clock, metrics, nullptr);
    ASSERT_FALSE(client.is_ok());
    EXPECT_THAT(client.status().message(), HasSubstr("has loaded no experts"));
}

TEST(ExchangeClientCreate, refuses_an_option_out_of_range_by_name) {
    ScriptedWire wire;
    MetricsRegistry metrics;
    const SteadyClock clock;
    ExchangeOptions options;
    options.limits = kFakeLimits;
    options.limits.max_rows = 70000;
    const auto client = ExchangeClient::create(options, two_servers(), wire.factory(), FrameWork{},
                                               clock, metrics, nullptr);
    ASSERT_FALSE(client.is_ok());
    EXPECT_THAT(client.status().message(), HasSubstr("max_rows is 70000, expected 1 to 65535"));
}

}  // namespace
}  // namespace k3pod
