#pragma once
// The promises of k3pod/transport/transport.h as tests. Each implementation instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract, ::testing::Values(my_case), case_name);
//
// and links transport_contract.cc.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/transport/transport.h"

namespace k3pod {

using Bytes = std::vector<std::byte>;

// A peer that can be killed in the middle of anything. It echoes every message that it gets to the
// one station whose address it was made with.
class MortalPeer {
  public:
    virtual ~MortalPeer() = default;
    virtual Bytes address() = 0;
    // No word to anyone; when it returns, the peer is gone for good (a process: reaped).
    virtual void kill() = 0;
};

// One set of transports that can reach each other, fresh for each test.
class TransportWorld {
  public:
    virtual ~TransportWorld() = default;
    virtual Result<std::unique_ptr<Transport>> make(TransportHandler& handler) = 0;
    virtual std::unique_ptr<MortalPeer> make_mortal_peer(const Bytes& station_address) = 0;
};

struct TransportCase {
    std::string name;
    std::function<std::unique_ptr<TransportWorld>()> make_world;
};

inline std::string case_name(const ::testing::TestParamInfo<TransportCase>& info) {
    return info.param.name;
}

// Remembers everything a transport says.
class Recorder : public TransportHandler {
  public:
    struct Message {
        Bytes header;
        Bytes payload;
    };
    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    void on_sent(uint64_t token) override;
    void on_peer_failed(PeerId peer, const Status& why) override;

    std::vector<Message> messages;
    std::map<uint64_t, int> sent;  // token -> how often on_sent came
    std::map<PeerId, std::vector<Status>> failures;
    std::function<void(uint64_t token)> sent_hook;
};

// A transport with what it said. Not movable: the transport borrows the recorder.
struct Node {
    Recorder recorder;
    std::unique_ptr<Transport> transport;
};

class TransportContract : public ::testing::TestWithParam<TransportCase> {
  protected:
    void SetUp() override { world_ = GetParam().make_world(); }

    // Borrowed until the test ends or remove_node().
    Node& add_node();
    void remove_node(Node& node);
    // A connection that must work.
    PeerId connect(Node& from, Node& to);
    // Polls every node until `done` or 10 s; false when time ran out.
    bool drive_until(const std::function<bool()>& done);
    void expect_sent_once(const Node& node, uint64_t first_token, uint64_t last_token);

    std::unique_ptr<TransportWorld> world_;
    std::vector<std::unique_ptr<Node>> nodes_;
};

// 64 bytes that name `number`, and `num_bytes` bytes that depend on it at each place.
Bytes test_header(uint32_t number);
Bytes test_payload(uint32_t number, size_t num_bytes);
uint32_t number_of(const Bytes& header);

}  // namespace k3pod
