#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <set>

#include "k3pod/transport/transport.h"
#include "tests/support/fake_clock.h"

namespace k3pod {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

struct Heard final : TransportHandler {
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        Bytes& message = messages.emplace_back(header.begin(), header.end());
        message.insert(message.end(), payload.begin(), payload.end());
        numbers.push_back(std::to_integer<int>(header[0]));
    }
    void on_sent(uint64_t token) override { sent.push_back(token); }
    void on_peer_failed(PeerId peer, const Status& why) override {
        failures.emplace_back(peer, why.message());
    }
    std::vector<Bytes> messages;
    std::vector<int> numbers;  // first byte of each header
    std::vector<uint64_t> sent;
    std::vector<std::pair<PeerId, std::string>> failures;
};

// A station behind a bad wire, and a server on a good one.
class Faulty : public ::testing::Test {
  protected:
    void start(const FaultPlan& plan) {
        auto made = make_faulty_transport(
            plan, clock_,
            [this](TransportHandler& handler) {
                return Result<std::unique_ptr<Transport>>(
                    make_loopback_transport(network_, handler));
            },
            station_heard_);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        station_ = std::move(made).value();
        server_ = make_loopback_transport(network_, server_heard_);
        peer_ = *station_->connect(server_->local_address(), "spark-1");
    }
    // Sends messages 0, 1, ... whose header begins with their number.
    void send(int count) {
        for (int i = 0; i < count; ++i) {
            headers_.emplace_back(64, static_cast<std::byte>(i));
            ASSERT_TRUE(station_->send(peer_, headers_.back(), payload_, i).is_ok());
        }
    }
    void poll() {
        station_->progress();
        server_->progress();
    }

    testing::FakeClock clock_;
    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
    Heard station_heard_, server_heard_;
    Bytes payload_ = Bytes(100, std::byte{0x5a});
    std::deque<Bytes> headers_;
    std::unique_ptr<Transport> station_, server_;
    PeerId peer_ = kNoPeer;
};

std::set<int> numbers_that_arrive(uint64_t seed) {
    testing::FakeClock clock;
    const auto network = make_loopback_network();
    Heard station_heard, server_heard;
    const auto station = make_faulty_transport(
                             {.seed = seed, .drop_rate = 0.3}, clock,
                             [&](TransportHandler& handler) {
                                 return Result<std::unique_ptr<Transport>>(
                                     make_loopback_transport(network, handler));
                             },
                             station_heard)
                             .value();
    const auto server = make_loopback_transport(network, server_heard);
    const PeerId peer = *station->connect(server->local_address(), "spark-1");
    std::vector<Bytes> headers;
    for (int i = 0; i < 200; ++i) headers.emplace_back(64, static_cast<std::byte>(i));
    for (const Bytes& header : headers) EXPECT_TRUE(station->send(peer, header, {}, 0).is_ok());
    station->progress();
    server->progress();
    return {server_heard.numbers.begin(), server_heard.numbers.end()};
}

TEST(FaultySeed, decides_everything) {
    EXPECT_EQ(numbers_that_arrive(7), numbers_that_arrive(7));
    EXPECT_NE(numbers_that_arrive(7), numbers_that_arrive(8));
    // 200 messages at 30 %: 140 expected, five standard deviations are 32.
    EXPECT_NEAR(static_cast<double>(numbers_that_arrive(7).size()), 140, 32);
}

TEST_F(Faulty, a_dropped_message_is_sent_as_far_as_the_sender_can_tell) {
    start({.drop_rate = 1});
    send(3);
    poll();
    EXPECT_THAT(station_heard_.sent, ElementsAre(0, 1, 2));
    EXPECT_TRUE(server_heard_.messages.empty());
}

TEST_F(Faulty, a_duplicated_message_arrives_twice_and_is_sent_once) {
    start({.duplicate_rate = 1});
    send(2);
    poll();
    EXPECT_THAT(server_heard_.numbers, ElementsAre(0, 0, 1, 1));
    EXPECT_THAT(station_heard_.sent, ElementsAre(0, 1));
}

TEST_F(Faulty, a_corrupted_message_differs_in_one_bit_and_the_senders_bytes_in_none) {
    start({.seed = 3, .corrupt_rate = 1});
    send(50);
    poll();
    ASSERT_EQ(server_heard_.messages.size(), 50u);
    for (int i = 0; i < 50; ++i) {
        Bytes original(64, static_cast<std::byte>(i));
        EXPECT_EQ(headers_[i], original);
        original.insert(original.end(), payload_.begin(), payload_.end());
        ASSERT_EQ(server_heard_.messages[i].size(), 164u);
        int flipped = 0;
        for (size_t at = 0; at < 164; ++at) {
            const auto difference = original[at] ^ server_heard_.messages[i][at];
            flipped += std::popcount(std::to_integer<unsigned>(difference));
        }
        EXPECT_EQ(flipped, 1) << "message " << i;
    }
    EXPECT_EQ(payload_, Bytes(100, std::byte{0x5a}));
}

TEST_F(Faulty, a_delayed_message_leaves_when_its_time_has_come) {
    start({.min_delay = milliseconds(5), .max_delay = milliseconds(5)});
    send(1);
    clock_.advance(milliseconds(4));
    poll();
    EXPECT_TRUE(server_heard_.messages.empty());
    EXPECT_TRUE(station_heard_.sent.empty());
    clock_.advance(milliseconds(1));
    poll();
    EXPECT_THAT(server_heard_.numbers, ElementsAre(0));
    EXPECT_THAT(station_heard_.sent, ElementsAre(0));
}

TEST_F(Faulty, unequal_delays_change_the_order) {
    start({.seed = 11, .max_delay = milliseconds(100)});
    send(20);
    for (int i = 0; i < 110; ++i) {
        clock_.advance(milliseconds(1));
        poll();
    }
    EXPECT_EQ(server_heard_.numbers.size(), 20u);
    EXPECT_FALSE(std::ranges::is_sorted(server_heard_.numbers));
}

TEST_F(Faulty, a_wait_ends_when_a_delayed_message_is_due) {
    start({.min_delay = milliseconds(5), .max_delay = milliseconds(5)});
    send(1);
    const auto start_time = std::chrono::steady_clock::now();
    station_->wait(std::chrono::seconds(60));
    EXPECT_LT(std::chrono::steady_clock::now() - start_time, std::chrono::seconds(30));
}

TEST_F(Faulty, a_disconnect_fails_the_send_and_the_peer_once) {
    start({.disconnect_rate = 1});
    const Bytes header(64);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(station_->send(peer_, header, {}, 1).code(), Code::kUnavailable);
        poll();
    }
    ASSERT_EQ(station_heard_.failures.size(), 1u);
    EXPECT_EQ(station_heard_.failures[0].first, peer_);
    EXPECT_EQ(station_heard_.failures[0].second, "spark-1 is gone: disconnected by the fault plan");
    EXPECT_TRUE(station_heard_.sent.empty());
    EXPECT_TRUE(station_->connect(server_->local_address(), "spark-1").is_ok());
}

TEST_F(Faulty, delayed_messages_to_a_lost_peer_end_with_on_sent) {
    start({.min_delay = milliseconds(5), .max_delay = milliseconds(5)});
    send(2);
    server_.reset();
    station_->progress();
    station_->progress();
    EXPECT_THAT(station_heard_.sent, ElementsAre(0, 1));
    ASSERT_EQ(station_heard_.failures.size(), 1u);
    clock_.advance(milliseconds(10));
    station_->progress();
    EXPECT_EQ(station_heard_.sent.size(), 2u);
}

TEST_F(Faulty, refuses_plans_out_of_range_by_name) {
    const auto refusal = [this](const FaultPlan& plan) {
        return make_faulty_transport(plan, clock_, nullptr, station_heard_).status().message();
    };
    EXPECT_THAT(refusal({.drop_rate = 1.5}), HasSubstr("drop_rate is 1.5, expected 0 to 1"));
    EXPECT_THAT(refusal({.corrupt_rate = -0.1}), HasSubstr("corrupt_rate is -0.1"));
    EXPECT_THAT(refusal({.min_delay = milliseconds(2), .max_delay = milliseconds(1)}),
                HasSubstr("delays are 2000000 to 1000000 ns"));
}

}  // namespace
}  // namespace k3pod
