#pragma once
// An expert server's exchange whose station is played by the test.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "k3pod/exchange/exchange.h"
#include "k3pod/wire/codec.h"
#include "tests/support/gate.h"
#include "tests/support/scripted_rig.h"

namespace k3pod::testing {

// A request as the station would send it; change and seal() again to hurt it.
struct ScriptedRequest {
    wire::FrameHeader header{};
    std::vector<std::byte> payload{};

    void seal() {
        header.flags |= wire::kFlagPayloadChecked;
        header.payload_check = wire::payload_checksum(payload);
        wire::seal_header(header);
    }
};

// Node 1 of a placement where expert e is whole at holder e mod 2, in session 77 and epoch 5.
class ServerRig : public ScriptedRig {
  public:
    static constexpr uint64_t kSession = 77;

    ~ServerRig() {
        gate.open();
        server.reset();
    }

    void start() {
        auto made = ExchangeServer::create(options, wire.factory(), clock, metrics);
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        server = std::move(*made);
        open(kSession);
    }
    void open(uint64_t session) {
        const Status opened = server->open_session(assignment(session), gated_work());
        ASSERT_TRUE(opened.is_ok()) << opened.to_string();
    }
    static Assignment assignment(uint64_t session) {
        Assignment assignment;
        assignment.session = session;
        assignment.epoch = 5;
        assignment.node_index = 1;
        assignment.max_rows = 4;
        assignment.station_address = {std::byte{1}};
        return assignment;
    }
    // One row of ones, expert 3 with weight 0.5: in layer 2 the answer is 0.5 * 2 * 8 = 8.
    static ScriptedRequest request(uint64_t step = 1, uint16_t expert = 3) {
        ScriptedRequest made;
        made.header.kind = wire::FrameKind::kRequest;
        made.header.session = kSession;
        made.header.epoch = 5;
        made.header.layer = 2;
        made.header.rows = 1;
        made.header.step = step;
        made.header.node = 1;
        made.header.sent_ns = 1234;
        const std::vector<Bf16> latents(8, to_bf16(1.0f));
        const auto bytes = std::as_bytes(std::span(latents));
        made.payload.assign(bytes.begin(), bytes.end());
        made = with_entries(made, {{.row = 0, .expert = expert, .weight = 0.5f}});
        return made;
    }
    static ScriptedRequest with_entries(ScriptedRequest made,
                                        const std::vector<wire::WireEntry>& entries) {
        made.payload.resize(size_t{made.header.rows} * 16);
        const auto bytes = std::as_bytes(std::span(entries));
        made.payload.insert(made.payload.end(), bytes.begin(), bytes.end());
        made.header.entries = static_cast<uint32_t>(entries.size());
        made.header.payload_bytes = static_cast<uint32_t>(made.payload.size());
        made.seal();
        return made;
    }
    void deliver(const ScriptedRequest& made) { wire.deliver(made.header, made.payload); }
    ScriptedMessage reply(size_t count = 1) {
        return wire.wait_for_sent(wire::FrameKind::kReply, count);
    }
    ScriptedMessage refusal(size_t count = 1) {
        return wire.wait_for_sent(wire::FrameKind::kRefuse, count);
    }
    ::testing::AssertionResult has_disconnected(PeerId peer) {
        const TimePoint end = clock.now() + kPatience;
        while (clock.now() < end) {
            const std::vector<PeerId> gone = wire.disconnected();
            if (std::ranges::find(gone, peer) != gone.end()) return ::testing::AssertionSuccess();
            std::this_thread::yield();
        }
        return ::testing::AssertionFailure() << "peer " << peer << " is still connected";
    }

    Gate gate;  // every frame's work passes it
    Status fault;
    std::unique_ptr<ExchangeServer> server;

  private:
    FrameWork gated_work() {
        const FrameWork work = fake_experts(fake_placement({"spark-0", "spark-1"}, false), 1);
        return [this, work](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                            std::span<const wire::WireEntry> entries, std::span<float> out) {
            gate.pass();
            K3POD_TRY(fault);
            return work(layer, rows, latents, entries, out);
        };
    }
};

}  // namespace k3pod::testing
