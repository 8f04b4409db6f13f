#include "k3pod/wire/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace k3pod::wire {
namespace {

using ::testing::HasSubstr;

constexpr FrameLimits kLimits{
    .latent = 4, .num_layers = 6, .num_experts = 16, .top_k = 2, .max_rows = 3};

// Two rows of four bf16 values, then three entries: 16 + 24 bytes.
struct Request {
    FrameHeader header{};
    std::vector<WireEntry> entries{{0, 3, 0.5f}, {1, 3, 0.25f}, {0, 9, 0.5f}};
    std::vector<std::byte> payload;

    Request() {
        header.kind = FrameKind::kRequest;
        header.flags = kFlagPayloadChecked;
        header.session = 0x1122334455667788u;
        header.epoch = 7;
        header.layer = 5;
        header.rows = 2;
        header.step = 41;
        header.entries = 3;
        header.payload_bytes = 40;
        pack();
    }
    // Writes the entries behind the rows and brings the checksum up to date.
    void pack() {
        payload.assign(16 + entries.size() * sizeof(WireEntry), std::byte{0x3f});
        std::memcpy(payload.data() + 16, entries.data(), entries.size() * sizeof(WireEntry));
        header.payload_check = payload_checksum(payload);
    }
};

struct Reply {
    FrameHeader header{};
    std::vector<std::byte> payload = std::vector<std::byte>(16, std::byte{0x3f});

    Reply() {
        header.kind = FrameKind::kReply;
        header.flags = kFlagPayloadChecked;
        header.layer = 5;
        header.rows = 2;
        header.payload_bytes = 16;
        header.payload_check = payload_checksum(payload);
    }
};

std::span<const std::byte> bytes_of(const FrameHeader& header) {
    return std::as_bytes(std::span(&header, 1));
}

FrameHeader sealed(FrameHeader header) {
    seal_header(header);
    return header;
}

std::string refusal_of_request(const Request& request) {
    const Status status = check_request(request.header, request.payload, kLimits);
    EXPECT_NE(status.code(), Code::kOk);
    return status.message();
}

std::string refusal_of_reply(const Reply& reply) {
    const Status status = check_reply(reply.header, reply.payload, kLimits);
    EXPECT_NE(status.code(), Code::kOk);
    return status.message();
}

TEST(Codec, checksums_are_the_low_half_of_xxh3_64) {
    // XXH3-64 of the empty input is 0x2d06800538d394c2.
    EXPECT_EQ(payload_checksum({}), 0x38d394c2u);
    // Of a row, which is hashed with whatever vectors the machine has, at any alignment.
    std::vector<std::byte> bytes(1 + 7168);
    for (const size_t begin : {0u, 1u}) {
        for (size_t i = 0; i < 7168; ++i) bytes[begin + i] = static_cast<std::byte>(i % 251);
        EXPECT_EQ(payload_checksum(std::span(bytes).subspan(begin, 7168)), 0xdd6ccf4bu);
    }
}

TEST(Codec, seal_then_decode_gives_every_field_back) {
    const FrameHeader header = sealed(Request().header);
    const auto decoded = decode_header(bytes_of(header));
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->magic, 0x3350334bu);
    EXPECT_EQ(decoded->version, 1);
    EXPECT_EQ(decoded->kind, FrameKind::kRequest);
    EXPECT_EQ(decoded->session, 0x1122334455667788u);
    EXPECT_EQ(decoded->epoch, 7u);
    EXPECT_EQ(decoded->layer, 5);
    EXPECT_EQ(decoded->rows, 2);
    EXPECT_EQ(decoded->step, 41u);
    EXPECT_EQ(decoded->payload_bytes, 40u);
    EXPECT_EQ(std::memcmp(&*decoded, &header, kHeaderBytes), 0);
}

TEST(Codec, magic_reads_k3p3_in_memory) {
    const FrameHeader header = sealed({.kind = FrameKind::kHeartbeat});
    EXPECT_EQ(std::memcmp(&header, "K3P3", 4), 0);
}

TEST(Codec, refuses_header_of_wrong_length) {
    const FrameHeader header = sealed(Request().header);
    for (const size_t length : {size_t{0}, size_t{1}, size_t{63}}) {
        const auto decoded = decode_header(bytes_of(header).first(length));
        ASSERT_FALSE(decoded.is_ok());
        EXPECT_EQ(decoded.status().code(), Code::kInvalidArgument);
        EXPECT_THAT(decoded.status().message(), HasSubstr("expected 64"));
    }
}

TEST(Codec, refuses_wrong_magic_and_tells_the_other_byte_order_apart) {
    FrameHeader header = sealed(Request().header);
    header.magic = 0x20544547u;
    EXPECT_THAT(decode_header(bytes_of(header)).status().message(),
                HasSubstr("magic is 0x20544547, expected 0x3350334b"));
    header.magic = 0x4b335033u;
    EXPECT_THAT(decode_header(bytes_of(header)).status().message(), HasSubstr("byte order"));
}

TEST(Codec, refuses_another_version_by_number) {
    FrameHeader header = sealed(Request().header);
    header.version = 2;
    EXPECT_THAT(decode_header(bytes_of(header)).status().message(),
                HasSubstr("version is 2, expected 1"));
}

TEST(Codec, refuses_any_single_flipped_bit_of_the_header) {
    const FrameHeader header = sealed(Request().header);
    for (size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
        std::vector<std::byte> bytes(bytes_of(header).begin(), bytes_of(header).end());
        bytes[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_FALSE(decode_header(bytes).is_ok()) << "bit " << bit;
    }
}

TEST(Codec, refuses_unknown_kinds) {
    for (const int kind : {0, 8, 255}) {
        FrameHeader header{.kind = static_cast<FrameKind>(kind)};
        seal_header(header);
        EXPECT_THAT(decode_header(bytes_of(header)).status().message(),
                    HasSubstr("kind is " + std::to_string(kind) + ", expected 1 to 7"));
    }
}

TEST(Codec, accepts_a_good_request_at_any_alignment) {
    const Request request;
    for (size_t shift = 0; shift < 8; ++shift) {
        std::vector<std::byte> buffer(shift);
        buffer.insert(buffer.end(), request.payload.begin(), request.payload.end());
        const Status status =
            check_request(request.header, std::span(buffer).subspan(shift), kLimits);
        EXPECT_TRUE(status.is_ok()) << shift << ": " << status.to_string();
    }
}

TEST(Codec, accepts_a_request_without_entries) {
    Request request;
    request.entries.clear();
    request.header.entries = 0;
    request.header.payload_bytes = 16;
    request.pack();
    EXPECT_TRUE(check_request(request.header, request.payload, kLimits).is_ok());
}

struct RefusedRequest {
    const char* name;
    std::function<void(Request&)> damage;
    const char* says;
};

class CodecRequest : public ::testing::TestWithParam<RefusedRequest> {};

TEST_P(CodecRequest, is_refused) {
    Request request;
    GetParam().damage(request);
    EXPECT_THAT(refusal_of_request(request), HasSubstr(GetParam().says));
}

void change_entries(Request& r, std::vector<WireEntry> entries) {
    r.entries = std::move(entries);
    r.header.entries = static_cast<uint32_t>(r.entries.size());
    r.header.payload_bytes = static_cast<uint32_t>(16 + 8 * r.entries.size());
    r.pack();
}

const RefusedRequest kRefusedRequests[] = {
    {"reply_kind", [](Request& r) { r.header.kind = FrameKind::kReply; },
     "kind is 2, expected 1 (request)"},
    {"unknown_flag", [](Request& r) { r.header.flags |= 1u << 3; }, "flags are 0x0009"},
    {"part", [](Request& r) { r.header.part = 1; }, "part is 1, expected 0"},
    {"status", [](Request& r) { r.header.status = FrameStatus::kBusy; },
     "status is 4 in a request, expected 0"},
    {"layer", [](Request& r) { r.header.layer = 6; }, "layer is 6, the model has 6"},
    {"no_rows", [](Request& r) { r.header.rows = 0; }, "rows is 0, expected 1 to 3"},
    {"too_many_rows", [](Request& r) { r.header.rows = 4; }, "rows is 4, expected 1 to 3"},
    {"too_many_entries", [](Request& r) { r.header.entries = 5; },
     "entries is 5, 2 rows with top-k 2 allow 4"},
    {"huge_entries", [](Request& r) { r.header.entries = 0xffffffffu; }, "entries is 4294967295"},
    {"payload_bytes", [](Request& r) { r.header.payload_bytes = 41; },
     "payload_bytes is 41, expected 40"},
    {"cut_payload", [](Request& r) { r.payload.pop_back(); },
     "39 payload bytes arrived, payload_bytes says 40"},
    {"padded_payload", [](Request& r) { r.payload.push_back(std::byte{0}); },
     "41 payload bytes arrived, payload_bytes says 40"},
    {"empty_payload", [](Request& r) { r.payload.clear(); },
     "0 payload bytes arrived, payload_bytes says 40"},
    {"changed_payload", [](Request& r) { r.payload[3] ^= std::byte{1}; }, "payload checksum is"},
    {"entry_row",
     [](Request& r) {
         change_entries(r, {{2, 3, 1.0f}});
     },
     "entry 0 names row 2, the frame has 2"},
    {"entry_expert",
     [](Request& r) {
         change_entries(r, {{0, 3, 1.0f}, {0, 16, 1.0f}});
     },
     "entry 1 names expert 16, the layer has 16"},
    {"entry_nan",
     [](Request& r) {
         change_entries(r, {{0, 3, std::numeric_limits<float>::quiet_NaN()}});
     },
     "entry 0 has weight nan, expected a finite one"},
    {"entry_infinity",
     [](Request& r) {
         change_entries(r, {{0, 3, std::numeric_limits<float>::infinity()}});
     },
     "entry 0 has weight inf"},
    {"experts_out_of_order",
     [](Request& r) {
         change_entries(r, {{0, 9, 1.0f}, {0, 3, 1.0f}});
     },
     "entry 1 (expert 3, row 0) does not follow entry 0 (expert 9, row 0)"},
    {"rows_out_of_order",
     [](Request& r) {
         change_entries(r, {{1, 3, 1.0f}, {0, 3, 1.0f}});
     },
     "entry 1 (expert 3, row 0) does not follow entry 0 (expert 3, row 1)"},
    {"repeated_entry",
     [](Request& r) {
         change_entries(r, {{1, 3, 1.0f}, {1, 3, 1.0f}});
     },
     "does not follow"},
};

INSTANTIATE_TEST_SUITE_P(Codec, CodecRequest, ::testing::ValuesIn(kRefusedRequests),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Codec, ignores_the_payload_checksum_of_an_unflagged_request) {
    Request request;
    request.header.flags = 0;
    request.header.payload_check = 0;
    EXPECT_TRUE(check_request(request.header, request.payload, kLimits).is_ok());
}

TEST(Codec, accepts_good_replies_in_bf16_and_f32) {
    Reply reply;
    EXPECT_TRUE(check_reply(reply.header, reply.payload, kLimits).is_ok());
    reply.header.flags = kFlagReplyF32;
    reply.header.payload_bytes = 32;
    reply.payload.resize(32);
    EXPECT_TRUE(check_reply(reply.header, reply.payload, kLimits).is_ok());
}

TEST(Codec, accepts_an_empty_refusal_whatever_shape_it_echoes) {
    Reply reply;
    reply.header.kind = FrameKind::kRefuse;
    reply.header.status = FrameStatus::kBadFrame;
    reply.header.rows = 60000;
    reply.header.flags = 0;
    reply.header.payload_bytes = 0;
    reply.payload.clear();
    EXPECT_TRUE(check_reply(reply.header, reply.payload, kLimits).is_ok());
}

struct RefusedReply {
    const char* name;
    std::function<void(Reply&)> damage;
    const char* says;
};

class CodecReply : public ::testing::TestWithParam<RefusedReply> {};

TEST_P(CodecReply, is_refused) {
    Reply reply;
    GetParam().damage(reply);
    EXPECT_THAT(refusal_of_reply(reply), HasSubstr(GetParam().says));
}

const RefusedReply kRefusedReplies[] = {
    {"request_kind", [](Reply& r) { r.header.kind = FrameKind::kRequest; },
     "kind is 1, expected 2 (reply) or 7 (refuse)"},
    {"unknown_status", [](Reply& r) { r.header.status = static_cast<FrameStatus>(6); },
     "status is 6, expected 0 to 5"},
    {"refusal_without_reason", [](Reply& r) { r.header.kind = FrameKind::kRefuse; },
     "a refusal has status 0 (ok)"},
    {"rows_with_a_fault", [](Reply& r) { r.header.status = FrameStatus::kFault; },
     "payload_bytes is 16, expected 0"},
    {"unknown_flag", [](Reply& r) { r.header.flags |= 1u << 15; }, "flags are 0x8001"},
    {"part", [](Reply& r) { r.header.part = 3; }, "part is 3, expected 0"},
    {"layer", [](Reply& r) { r.header.layer = 6; }, "layer is 6, the model has 6"},
    {"too_many_rows", [](Reply& r) { r.header.rows = 4; }, "rows is 4, expected 1 to 3"},
    {"payload_bytes", [](Reply& r) { r.header.payload_bytes = 24; },
     "payload_bytes is 24, expected 16"},
    {"f32_flag_on_bf16_rows", [](Reply& r) { r.header.flags |= kFlagReplyF32; },
     "payload_bytes is 16, expected 32"},
    {"cut_payload", [](Reply& r) { r.payload.resize(8); },
     "8 payload bytes arrived, payload_bytes says 16"},
    {"changed_payload", [](Reply& r) { r.payload[15] ^= std::byte{0x80}; }, "payload checksum is"},
};

INSTANTIATE_TEST_SUITE_P(Codec, CodecReply, ::testing::ValuesIn(kRefusedReplies),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Codec, names_every_status_and_survives_unknown_ones) {
    EXPECT_STREQ(status_name(FrameStatus::kOk), "ok");
    EXPECT_STREQ(status_name(FrameStatus::kWrongEpoch), "wrong_epoch");
    EXPECT_STREQ(status_name(FrameStatus::kNotMyShard), "not_my_shard");
    EXPECT_STREQ(status_name(FrameStatus::kBadFrame), "bad_frame");
    EXPECT_STREQ(status_name(FrameStatus::kBusy), "busy");
    EXPECT_STREQ(status_name(FrameStatus::kFault), "fault");
    EXPECT_STREQ(status_name(static_cast<FrameStatus>(999)), "unknown");
}

TEST(Codec, payload_sizes_of_the_real_model) {
    // L = 3584: one row with 16 picks, and a prefill chunk of 512 rows with two picks each.
    EXPECT_EQ(request_payload_bytes(3584, 1, 16), 7296);
    EXPECT_EQ(request_payload_bytes(3584, 512, 1024), 3678208);
    EXPECT_EQ(reply_payload_bytes(3584, 1, false), 7168);
    EXPECT_EQ(reply_payload_bytes(3584, 512, true), 7340032);
}

}  // namespace
}  // namespace k3pod::wire
