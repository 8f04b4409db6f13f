// The promises about connections, death and waiting.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/contract/transport_contract.h"

namespace k3pod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// ---- connections ----

TEST_P(TransportContract, refuses_damaged_addresses_without_harm) {
    Node& station = add_node();
    Node& server = add_node();
    const Bytes good = server.transport->local_address();
    std::vector<Bytes> damaged = {{}, Bytes(8), Bytes(16, std::byte{0xff}), Bytes(4096)};
    damaged.emplace_back(good.begin(), good.end() - 1);
    damaged.push_back(good);
    damaged.back().push_back(std::byte{0});
    damaged.push_back(good);
    damaged.back()[0] ^= std::byte{1};
    for (const Bytes& address : damaged) {
        const auto peer = station.transport->connect(address, "spark-1");
        ASSERT_FALSE(peer.is_ok()) << address.size() << " bytes";
        EXPECT_EQ(peer.status().code(), Code::kInvalidArgument);
        EXPECT_NE(peer.status().message().find("spark-1"), std::string::npos);
    }
    connect(station, server);
}

TEST_P(TransportContract, refuses_sends_to_peers_it_does_not_have) {
    Node& station = add_node();
    const Bytes header = test_header(0);
    for (const PeerId peer : {kNoPeer, PeerId{0}, PeerId{77}}) {
        EXPECT_EQ(station.transport->send(peer, header, {}, 1).code(), Code::kUnavailable);
        station.transport->disconnect(peer);
    }
    EXPECT_EQ(station.transport->progress(), 0);
    EXPECT_TRUE(station.recorder.sent.empty());
}

TEST_P(TransportContract, disconnect_ends_outstanding_sends) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    const Bytes header = test_header(0);
    const Bytes payload = test_payload(0, 1 << 20);
    // Nobody polls the server, so most of this is still here when the axe falls.
    for (uint64_t token = 0; token < 16; ++token) {
        ASSERT_TRUE(station.transport->send(peer, header, payload, token).is_ok());
    }
    station.transport->disconnect(peer);
    station.transport->disconnect(peer);
    EXPECT_EQ(station.transport->send(peer, header, payload, 99).code(), Code::kUnavailable);
    ASSERT_TRUE(drive_until([&] { return station.recorder.sent.size() == 16; }));
    expect_sent_once(station, 0, 15);
    EXPECT_TRUE(station.recorder.failures.empty());
}

TEST_P(TransportContract, connects_anew_after_a_disconnect) {
    Node& station = add_node();
    Node& server = add_node();
    std::vector<PeerId> peers;
    for (uint32_t i = 0; i < 20; ++i) {
        peers.push_back(connect(station, server));
        const Bytes header = test_header(i);
        const Bytes payload = test_payload(i, 7168);
        ASSERT_TRUE(station.transport->send(peers.back(), header, payload, i).is_ok());
        ASSERT_TRUE(drive_until([&] {
            return server.recorder.messages.size() == i + 1 && station.recorder.sent.contains(i);
        })) << "connection "
            << i;
        EXPECT_TRUE(server.recorder.messages[i].payload == payload);
        station.transport->disconnect(peers.back());
    }
    std::ranges::sort(peers);
    EXPECT_EQ(std::ranges::adjacent_find(peers), peers.end()) << "a PeerId was given out twice";
    EXPECT_TRUE(station.recorder.failures.empty());
}

TEST_P(TransportContract, may_be_destroyed_with_sends_outstanding) {
    Node& station = add_node();
    Node& server = add_node();
    connect(server, station);
    const PeerId peer = connect(station, server);
    const Bytes header = test_header(0);
    const Bytes payload = test_payload(0, 4 << 20);
    for (uint64_t token = 0; token < 4; ++token) {
        ASSERT_TRUE(station.transport->send(peer, header, payload, token).is_ok());
    }
    station.transport->progress();
    remove_node(station);
    for (int i = 0; i < 1000; ++i) server.transport->progress();
    for (const auto& message : server.recorder.messages) EXPECT_TRUE(message.payload == payload);
}

// ---- death ----

TEST_P(TransportContract, reports_a_killed_peer_once_and_within_a_second) {
    Node& station = add_node();
    const auto mortal = world_->make_mortal_peer(station.transport->local_address());
    const auto peer = station.transport->connect(mortal->address(), "spark-1");
    ASSERT_TRUE(peer.is_ok()) << peer.status().to_string();
    const Bytes header = test_header(5);
    const Bytes payload = test_payload(5, 7168);
    ASSERT_TRUE(station.transport->send(*peer, header, payload, 1).is_ok());
    ASSERT_TRUE(drive_until([&] { return station.recorder.messages.size() == 1; }));

    mortal->kill();
    const auto killed = steady_clock::now();
    ASSERT_TRUE(drive_until([&] { return !station.recorder.failures.empty(); }));
    EXPECT_LT(steady_clock::now() - killed, seconds(1));
    ASSERT_TRUE(station.recorder.failures.contains(*peer));
    const Status why = station.recorder.failures.at(*peer).front();
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_NE(why.message().find("spark-1"), std::string::npos) << why.message();

    EXPECT_EQ(station.transport->send(*peer, header, payload, 2).code(), Code::kUnavailable);
    for (int i = 0; i < 1000; ++i) station.transport->progress();
    station.transport->disconnect(*peer);
    EXPECT_EQ(station.recorder.failures.size(), 1u);
    EXPECT_EQ(station.recorder.failures.at(*peer).size(), 1u);
}

TEST_P(TransportContract, sends_outstanding_at_a_death_end_with_on_sent) {
    Node& station = add_node();
    const auto mortal = world_->make_mortal_peer(station.transport->local_address());
    const auto peer = station.transport->connect(mortal->address(), "spark-1");
    ASSERT_TRUE(peer.is_ok()) << peer.status().to_string();
    const Bytes header = test_header(5);
    const Bytes payload = test_payload(5, 1 << 20);
    uint64_t num_sent = 0;
    while (num_sent < 16) {
        ASSERT_TRUE(station.transport->send(*peer, header, payload, num_sent++).is_ok());
    }
    mortal->kill();
    ASSERT_TRUE(drive_until([&] {
        return !station.recorder.failures.empty() && station.recorder.sent.size() == num_sent;
    })) << station.recorder.sent.size()
        << " of 16 ended, " << station.recorder.failures.size() << " failures";
    expect_sent_once(station, 0, num_sent - 1);
}

TEST_P(TransportContract, the_address_of_a_dead_peer_gives_an_error_and_no_hang) {
    Node& station = add_node();
    const auto mortal = world_->make_mortal_peer(station.transport->local_address());
    const Bytes address = mortal->address();
    mortal->kill();
    const auto peer = station.transport->connect(address, "spark-1");
    if (!peer.is_ok()) {
        EXPECT_EQ(peer.status().code(), Code::kUnavailable) << peer.status().to_string();
        return;
    }
    const Bytes header = test_header(5);
    if (!station.transport->send(*peer, header, {}, 1).is_ok()) return;
    EXPECT_TRUE(drive_until([&] {
        return station.recorder.failures.contains(*peer) && station.recorder.sent.contains(1);
    }));
}

TEST_P(TransportContract, one_dead_peer_leaves_the_others_alone) {
    Node& station = add_node();
    Node& server = add_node();
    const auto mortal = world_->make_mortal_peer(station.transport->local_address());
    const auto doomed = station.transport->connect(mortal->address(), "spark-1");
    ASSERT_TRUE(doomed.is_ok());
    const PeerId living = connect(station, server);
    mortal->kill();
    const Bytes header = test_header(9);
    (void)station.transport->send(*doomed, header, {}, 1).is_ok();
    ASSERT_TRUE(station.transport->send(living, header, {}, 2).is_ok());
    ASSERT_TRUE(drive_until([&] {
        return station.recorder.failures.contains(*doomed) && server.recorder.messages.size() == 1;
    }));
    EXPECT_FALSE(station.recorder.failures.contains(living));
}

// ---- waiting ----

constexpr seconds kLong(30);  // a wait that ends by itself has failed
constexpr seconds kSoon(10);

TEST_P(TransportContract, a_wake_ends_the_wait_in_progress) {
    Node& node = add_node();
    const auto start = steady_clock::now();
    std::atomic<bool> is_back{false};
    std::thread waiter([&] {
        node.transport->wait(kLong);
        is_back = true;
    });
    // Whether the wait has begun cannot be seen; a wake before it counts for it as well.
    while (!is_back) {
        node.transport->wake();
        std::this_thread::yield();
    }
    waiter.join();
    EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST_P(TransportContract, a_wake_before_the_wait_is_not_lost) {
    Node& node = add_node();
    const auto start = steady_clock::now();
    node.transport->wake();
    node.transport->wait(kLong);
    EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST_P(TransportContract, a_wait_ends_at_its_timeout) {
    Node& node = add_node();
    const auto start = steady_clock::now();
    // Waits may end early, so their number is open, but not the time that they take together.
    while (steady_clock::now() - start < milliseconds(50)) node.transport->wait(milliseconds(20));
    node.transport->wait(Nanoseconds(0));
    node.transport->wait(Nanoseconds(-1));
    EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST_P(TransportContract, a_message_ends_the_wait) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId to_server = connect(station, server);
    const PeerId to_station = connect(server, station);
    const Bytes header = test_header(3);
    const Bytes payload = test_payload(3, 7168);
    const auto start = steady_clock::now();
    // Fifty times there and back with both sides asleep in between: a lost event costs 30 s.
    std::thread echo([&] {
        for (size_t seen = 0; seen < 50;) {
            if (server.transport->progress() == 0) server.transport->wait(kLong);
            for (; seen < server.recorder.messages.size(); ++seen) {
                EXPECT_TRUE(server.transport->send(to_station, header, payload, seen).is_ok());
            }
        }
        while (server.recorder.sent.size() < 50) {
            if (server.transport->progress() == 0) server.transport->wait(kLong);
        }
    });
    for (size_t i = 0; i < 50; ++i) {
        EXPECT_TRUE(station.transport->send(to_server, header, payload, i).is_ok());
        while (station.recorder.messages.size() <= i) {
            if (station.transport->progress() == 0) station.transport->wait(kLong);
        }
    }
    echo.join();
    EXPECT_LT(steady_clock::now() - start, kSoon);
}

TEST_P(TransportContract, another_thread_may_wait_while_one_drives) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    std::atomic<bool> is_done{false};
    std::thread keeper([&] {
        while (!is_done) server.transport->wait(milliseconds(1));
    });
    const Bytes header = test_header(1);
    const Bytes payload = test_payload(1, 7168);
    for (uint64_t token = 0; token < 500; ++token) {
        ASSERT_TRUE(station.transport->send(peer, header, payload, token).is_ok());
        ASSERT_TRUE(drive_until([&] { return server.recorder.messages.size() == token + 1; }));
    }
    is_done = true;
    server.transport->wake();
    keeper.join();
}

TEST_P(TransportContract, the_driver_may_be_another_thread_each_time) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    const Bytes header = test_header(1);
    for (uint64_t token = 0; token < 20; ++token) {
        std::thread([&] {
            EXPECT_TRUE(station.transport->send(peer, header, {}, token).is_ok());
        }).join();
        std::thread([&] {
            EXPECT_TRUE(drive_until([&] { return server.recorder.messages.size() == token + 1; }));
        }).join();
    }
}

}  // namespace
}  // namespace k3pod
