#pragma once
// A station's exchange client whose servers are played by the test.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "k3pod/exchange/exchange.h"
#include "k3pod/wire/codec.h"
#include "tests/support/scripted_rig.h"

namespace k3pod::testing {

class ClientRig : public ScriptedRig {
  public:
    explicit ClientRig(Placement with_placement) : placement(std::move(with_placement)) {
        options.frame_deadline = std::chrono::seconds(20);
        options.heartbeat_interval = std::chrono::seconds(60);
    }
    ~ClientRig() { client.reset(); }

    // The sessions of the holders are 10, 11, ... in order.
    void start() {
        auto made = ExchangeClient::create(
            options, placement, wire.factory(), local, clock, metrics,
            [this](const std::string& node, const Status& why) {
                downs.set_value({node, why});  // A second report of a test would throw.
            });
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        client = std::move(*made);
        for (size_t h = 0; h < placement.holders.size(); ++h) {
            if (placement.holders[h] != "station") attach(placement.holders[h], 10 + h);
        }
    }
    void attach(const std::string& node, uint64_t session) {
        const std::vector<std::byte> address{std::byte{1}};
        const Status attached = client->attach(node, address, session);
        ASSERT_TRUE(attached.is_ok()) << attached.to_string();
    }
    void dispatch(const FakeStep& step) {
        const Status sent = client->dispatch(step.rows());
        ASSERT_TRUE(sent.is_ok()) << sent.to_string();
    }
    // combine() on a thread of its own.
    std::future<Result<std::vector<float>>> combine(const FakeStep& step) {
        return std::async(std::launch::async,
                          [this, size = step.latents.size()]() -> Result<std::vector<float>> {
                              std::vector<float> out(size);
                              K3POD_TRY(client->combine(out));
                              return out;
                          });
    }
    ScriptedMessage request(size_t count = 1) {
        return wire.wait_for_sent(wire::FrameKind::kRequest, count);
    }
    std::pair<std::string, Status> wait_for_down() {
        auto down = downs.get_future();
        if (down.wait_for(kPatience) != std::future_status::ready) return {};
        return down.get();
    }

    const Placement placement;
    FrameWork local;
    std::promise<std::pair<std::string, Status>> downs;
    std::unique_ptr<ExchangeClient> client;
};

// The latents and the entries of a request.
inline std::vector<float> latents_of(const ScriptedMessage& request) {
    std::vector<float> latents(size_t{request.header.rows} * kFakeLimits.latent);
    for (size_t i = 0; i < latents.size(); ++i) {
        Bf16 value;
        std::memcpy(&value, request.payload.data() + 2 * i, 2);
        latents[i] = to_f32(value);
    }
    return latents;
}
inline std::vector<wire::WireEntry> entries_of(const ScriptedMessage& request) {
    std::vector<wire::WireEntry> entries(request.header.entries);
    std::memcpy(entries.data(),
                request.payload.data() + size_t{request.header.rows} * kFakeLimits.latent * 2,
                entries.size() * sizeof(wire::WireEntry));
    return entries;
}

// A reply as a server would send it; change and seal() again to hurt it.
struct ScriptedReply {
    wire::FrameHeader header{};
    std::vector<std::byte> payload{};

    void seal() {
        header.payload_bytes = static_cast<uint32_t>(payload.size());
        header.flags |= wire::kFlagPayloadChecked;
        header.payload_check = wire::payload_checksum(payload);
        wire::seal_header(header);
    }
};
// Every value of every row is `value`.
inline ScriptedReply make_reply(const ScriptedMessage& request, float value) {
    ScriptedReply reply{.header = request.header};
    reply.header.kind = wire::FrameKind::kReply;
    const size_t values = size_t{request.header.rows} * kFakeLimits.latent;
    const bool is_f32 = (request.header.flags & wire::kFlagReplyF32) != 0;
    reply.payload.resize(values * (is_f32 ? 4 : 2));
    const Bf16 rounded = to_bf16(value);
    for (size_t i = 0; i < values; ++i) {
        if (is_f32) {
            std::memcpy(reply.payload.data() + 4 * i, &value, 4);
        } else {
            std::memcpy(reply.payload.data() + 2 * i, &rounded, 2);
        }
    }
    reply.seal();
    return reply;
}
inline wire::FrameHeader make_refusal(const ScriptedMessage& request, wire::FrameStatus status) {
    wire::FrameHeader header = request.header;
    header.kind = wire::FrameKind::kRefuse;
    header.status = status;
    header.flags = 0;
    header.payload_bytes = 0;
    header.payload_check = 0;
    wire::seal_header(header);
    return header;
}

}  // namespace k3pod::testing
