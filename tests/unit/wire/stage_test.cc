#include "k3pod/wire/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace k3pod::wire {
namespace {

using testing::HasSubstr;

StageHeader sealed(StageKind kind, uint32_t payload_bytes) {
    StageHeader header{.kind = kind, .session = 7, .shard = 3, .payload_bytes = payload_bytes};
    seal_header(header);
    return header;
}

std::string refusal(const StageHeader& header, std::span<const std::byte> payload = {}) {
    const auto decoded = decode_stage_header(std::as_bytes(std::span(&header, 1)), payload);
    EXPECT_FALSE(decoded.is_ok());
    return decoded.status().message();
}

TEST(StageHeader, comes_back_as_it_was_sealed) {
    const std::array<std::byte, 5> payload{};
    const StageHeader header = sealed(StageKind::kChunk, 5);
    const auto decoded = decode_stage_header(std::as_bytes(std::span(&header, 1)), payload);
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    EXPECT_EQ(decoded->session, 7u);
    EXPECT_EQ(decoded->shard, 3u);
}

TEST(StageHeader, with_any_bit_changed_is_refused) {
    const StageHeader header = sealed(StageKind::kAck, 0);
    for (size_t bit = 0; bit < 8 * sizeof(header); ++bit) {
        StageHeader changed = header;
        auto* const bytes = reinterpret_cast<unsigned char*>(&changed);
        bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << bit % 8);
        refusal(changed);
    }
}

TEST(StageHeader, of_another_kind_or_length_is_refused_by_name) {
    EXPECT_THAT(refusal(sealed(static_cast<StageKind>(5), 0)), HasSubstr("kind is 5"));
    EXPECT_THAT(refusal(sealed(StageKind::kChunk, 4)),
                HasSubstr("0 payload bytes arrived, payload_bytes says 4"));
    const std::array<std::byte, 10> few{};
    EXPECT_THAT(decode_stage_header(few, {}).status().message(), HasSubstr("10 bytes long"));
}

}  // namespace
}  // namespace k3pod::wire
