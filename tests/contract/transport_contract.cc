#include "tests/contract/transport_contract.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace k3pod {

using std::chrono::seconds;
using std::chrono::steady_clock;

void Recorder::on_message(std::span<const std::byte> header, std::span<const std::byte> payload) {
    messages.push_back({{header.begin(), header.end()}, {payload.begin(), payload.end()}});
}

void Recorder::on_sent(uint64_t token) {
    ++sent[token];
    if (sent_hook) sent_hook(token);
}

void Recorder::on_peer_failed(PeerId peer, const Status& why) {
    failures[peer].push_back(why);
}

Bytes test_header(uint32_t number) {
    Bytes header(64);
    for (size_t i = 0; i < 16; ++i) std::memcpy(&header[i * 4], &number, sizeof(number));
    return header;
}

Bytes test_payload(uint32_t number, size_t num_bytes) {
    Bytes payload(num_bytes);
    uint32_t state = number * 2654435761u + 1;
    for (std::byte& byte : payload) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::byte>(state >> 24);
    }
    return payload;
}

uint32_t number_of(const Bytes& header) {
    uint32_t number = 0;
    std::memcpy(&number, header.data(), sizeof(number));
    return number;
}

Node& TransportContract::add_node() {
    nodes_.push_back(std::make_unique<Node>());
    Node& node = *nodes_.back();
    auto transport = world_->make(node.recorder);
    if (!transport) throw std::runtime_error(transport.status().to_string());
    node.transport = std::move(transport).value();
    return node;
}

void TransportContract::remove_node(Node& node) {
    std::erase_if(nodes_, [&](const auto& owned) { return owned.get() == &node; });
}

PeerId TransportContract::connect(Node& from, Node& to) {
    const auto peer = from.transport->connect(to.transport->local_address(), "spark-1");
    EXPECT_TRUE(peer.is_ok()) << peer.status().to_string();
    return peer.is_ok() ? *peer : kNoPeer;
}

bool TransportContract::drive_until(const std::function<bool()>& done) {
    const auto deadline = steady_clock::now() + seconds(10);
    while (!done()) {
        if (steady_clock::now() > deadline) return false;
        int num_events = 0;
        for (const auto& node : nodes_) num_events += node->transport->progress();
        if (num_events == 0) std::this_thread::yield();
    }
    return true;
}

void TransportContract::expect_sent_once(const Node& node, uint64_t first_token,
                                         uint64_t last_token) {
    for (uint64_t token = first_token; token <= last_token; ++token) {
        const auto it = node.recorder.sent.find(token);
        EXPECT_EQ(it == node.recorder.sent.end() ? 0 : it->second, 1) << "token " << token;
    }
}

namespace {

TEST_P(TransportContract, delivers_messages_of_every_size_unchanged) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    // Around the sizes at which transports change their way of sending, and the largest.
    std::vector<size_t> sizes = {0, 1, 63, 64, 65, 7168, 7296, 15000, 262144, 3678208};
    for (const size_t edge : {2048u, 8192u, 8256u, 61440u, 65536u}) {
        for (size_t size = edge - 130; size <= edge + 2; size += 12) sizes.push_back(size);
    }
    sizes.push_back(static_cast<size_t>(station.transport->max_message_bytes()));

    for (uint32_t i = 0; i < sizes.size(); ++i) {
        const Bytes header = test_header(i);
        const Bytes payload = test_payload(i, sizes[i]);
        const Status status = station.transport->send(peer, header, payload, i);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        ASSERT_TRUE(drive_until([&] {
            return server.recorder.messages.size() == i + 1 && station.recorder.sent.contains(i);
        })) << sizes[i]
            << " bytes did not arrive";
        EXPECT_EQ(server.recorder.messages[i].header, header) << sizes[i] << " bytes";
        EXPECT_TRUE(server.recorder.messages[i].payload == payload) << sizes[i] << " bytes";
        server.recorder.messages[i].payload.clear();
    }
    expect_sent_once(station, 0, sizes.size() - 1);
}

TEST_P(TransportContract, keeps_the_order_of_messages_to_one_peer) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    const size_t sizes[] = {0, 7168, 100, 70000, 8, 300000, 7296};
    std::vector<Bytes> headers, payloads;
    for (uint32_t i = 0; i < 210; ++i) {
        headers.push_back(test_header(i));
        payloads.push_back(test_payload(i, sizes[i % 7]));
    }
    for (uint32_t i = 0; i < 210; ++i) {
        ASSERT_TRUE(station.transport->send(peer, headers[i], payloads[i], i).is_ok());
    }
    ASSERT_TRUE(drive_until([&] {
        return server.recorder.messages.size() >= 210 && station.recorder.sent.size() == 210;
    }));
    ASSERT_EQ(server.recorder.messages.size(), 210u);
    for (uint32_t i = 0; i < 210; ++i) {
        ASSERT_EQ(number_of(server.recorder.messages[i].header), i);
        ASSERT_TRUE(server.recorder.messages[i].payload == payloads[i]) << "message " << i;
    }
    expect_sent_once(station, 0, 209);
}

TEST_P(TransportContract, needs_the_buffers_only_until_on_sent) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    std::vector<Bytes> headers, payloads;
    for (uint32_t i = 0; i < 32; ++i) {
        headers.push_back(test_header(i));
        payloads.push_back(test_payload(i, i % 2 == 0 ? 7168 : 100000));
    }
    // Whoever still reads after on_sent reads rubbish, and the receiver would see it.
    station.recorder.sent_hook = [&](uint64_t token) {
        std::ranges::fill(headers[token], std::byte{0xee});
        std::ranges::fill(payloads[token], std::byte{0xee});
    };
    for (uint32_t i = 0; i < 32; ++i) {
        ASSERT_TRUE(station.transport->send(peer, headers[i], payloads[i], i).is_ok());
    }
    ASSERT_TRUE(drive_until([&] { return server.recorder.messages.size() == 32; }));
    for (uint32_t i = 0; i < 32; ++i) {
        const Recorder::Message& message = server.recorder.messages[i];
        EXPECT_EQ(message.header, test_header(i));
        EXPECT_TRUE(message.payload == test_payload(i, message.payload.size())) << "message " << i;
    }
}

TEST_P(TransportContract, both_sides_may_send_megabytes_at_once) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId to_server = connect(station, server);
    const PeerId to_station = connect(server, station);
    const Bytes header = test_header(1);
    const Bytes payload = test_payload(1, 1 << 20);
    for (uint64_t token = 0; token < 8; ++token) {
        ASSERT_TRUE(station.transport->send(to_server, header, payload, token).is_ok());
        ASSERT_TRUE(server.transport->send(to_station, header, payload, token).is_ok());
    }
    ASSERT_TRUE(drive_until([&] {
        return server.recorder.messages.size() == 8 && station.recorder.messages.size() == 8 &&
               server.recorder.sent.size() == 8 && station.recorder.sent.size() == 8;
    }));
    for (const Node* node : {&station, &server}) {
        expect_sent_once(*node, 0, 7);
        for (const auto& message : node->recorder.messages) {
            EXPECT_TRUE(message.payload == payload);
        }
    }
}

TEST_P(TransportContract, scatters_to_eight_peers_and_gathers_their_replies) {
    Node& station = add_node();
    std::vector<Node*> servers;
    std::vector<PeerId> out, back;
    for (int i = 0; i < 8; ++i) {
        servers.push_back(&add_node());
        out.push_back(connect(station, *servers.back()));
        back.push_back(connect(*servers.back(), station));
    }
    std::vector<Bytes> headers, payloads;
    for (uint32_t i = 0; i < 8; ++i) {
        headers.push_back(test_header(i));
        payloads.push_back(test_payload(i, 7168));
        ASSERT_TRUE(station.transport->send(out[i], headers[i], payloads[i], i).is_ok());
    }
    ASSERT_TRUE(drive_until([&] {
        return std::ranges::all_of(servers, [](Node* s) { return !s->recorder.messages.empty(); });
    }));
    for (uint32_t i = 0; i < 8; ++i) {
        const Recorder::Message& got = servers[i]->recorder.messages.front();
        EXPECT_EQ(number_of(got.header), i);
        ASSERT_TRUE(servers[i]->transport->send(back[i], got.header, got.payload, 0).is_ok());
    }
    ASSERT_TRUE(drive_until([&] { return station.recorder.messages.size() == 8; }));
    std::vector<bool> seen(8);
    for (const Recorder::Message& reply : station.recorder.messages) {
        const uint32_t number = number_of(reply.header);
        ASSERT_LT(number, 8u);
        EXPECT_TRUE(reply.payload == payloads[number]);
        seen[number] = true;
    }
    EXPECT_EQ(std::ranges::count(seen, true), 8);
}

TEST_P(TransportContract, refuses_messages_that_break_the_limits) {
    Node& station = add_node();
    Node& server = add_node();
    const PeerId peer = connect(station, server);
    const Bytes header = test_header(0);
    const Bytes too_long(static_cast<size_t>(station.transport->max_message_bytes()) + 1);
    for (const size_t length : {size_t{0}, size_t{63}}) {
        const Status status = station.transport->send(peer, std::span(header).first(length), {}, 1);
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        EXPECT_NE(status.message().find("expected 64"), std::string::npos) << status.message();
    }
    const Status status = station.transport->send(peer, header, too_long, 2);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("spark-1"), std::string::npos) << status.message();
    // A good one behind them is the only one that is sent.
    ASSERT_TRUE(station.transport->send(peer, header, {}, 3).is_ok());
    ASSERT_TRUE(drive_until([&] { return station.recorder.sent.contains(3); }));
    EXPECT_EQ(station.recorder.sent.size(), 1u);
}

TEST_P(TransportContract, ends_the_program_of_a_handler_that_calls_back_into_it) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Node& station = add_node();
    const PeerId peer = connect(station, station);
    const Bytes header = test_header(0);
    station.recorder.sent_hook = [&](uint64_t) { station.transport->disconnect(peer); };
    ASSERT_TRUE(station.transport->send(peer, header, {}, 1).is_ok());
    EXPECT_DEATH(drive_until([&] { return false; }), "from inside its own handler");
}

TEST_P(TransportContract, carries_a_step_of_512_fp32_rows) {
    EXPECT_GE(add_node().transport->max_message_bytes(), 512 * 3584 * 4);
}

}  // namespace
}  // namespace k3pod
