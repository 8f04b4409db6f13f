#include "transport/ucx/reassembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/fake_clock.h"

namespace k3pod::ucx {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes header_of(const PartHeader& part) {
    Bytes bytes(part.offset == 0 ? kFirstPartHeaderBytes : sizeof(part), std::byte{0x11});
    std::memcpy(bytes.data(), &part, sizeof(part));
    return bytes;
}

class ReassemblyTest : public ::testing::Test {
  protected:
    // Adds `num_bytes` bytes with value `fill`.
    Result<std::optional<Reassembly::Message>> add(const PartHeader& part, size_t num_bytes,
                                                   int fill) {
        payload_.assign(num_bytes, static_cast<std::byte>(fill));
        return reassembly_.add(header_of(part), payload_);
    }

    testing::FakeClock clock_;
    Reassembly reassembly_{clock_};
    Bytes payload_;
};

TEST_F(ReassemblyTest, gives_the_message_with_its_last_part) {
    const auto first = add({.sender = 1, .offset = 0, .total = 10}, 6, 1);
    ASSERT_TRUE(first.is_ok());
    EXPECT_FALSE(first.value().has_value());
    const auto last = add({.sender = 1, .offset = 6, .total = 10}, 4, 2);
    ASSERT_TRUE(last.is_ok());
    ASSERT_TRUE(last.value().has_value());
    EXPECT_EQ(Bytes(last.value()->header.begin(), last.value()->header.end()),
              Bytes(64, std::byte{0x11}));
    Bytes expected(10, std::byte{1});
    std::fill(expected.begin() + 6, expected.end(), std::byte{2});
    EXPECT_EQ(Bytes(last.value()->payload.begin(), last.value()->payload.end()), expected);
    EXPECT_EQ(reassembly_.num_unfinished(), 0u);
}

TEST_F(ReassemblyTest, keeps_senders_and_streams_apart) {
    ASSERT_TRUE(add({.sender = 1, .stream = 0, .offset = 0, .total = 2}, 1, 1).is_ok());
    ASSERT_TRUE(add({.sender = 1, .stream = 1, .offset = 0, .total = 2}, 1, 2).is_ok());
    ASSERT_TRUE(add({.sender = 2, .stream = 0, .offset = 0, .total = 2}, 1, 3).is_ok());
    EXPECT_EQ(reassembly_.num_unfinished(), 3u);
    const auto done = add({.sender = 1, .stream = 1, .offset = 1, .total = 2}, 1, 9);
    ASSERT_TRUE(done.is_ok());
    ASSERT_TRUE(done.value().has_value());
    EXPECT_EQ(done.value()->payload[0], std::byte{2});
}

TEST_F(ReassemblyTest, a_new_message_of_a_stream_replaces_the_unfinished_one) {
    ASSERT_TRUE(add({.sender = 1, .message = 4, .offset = 0, .total = 4}, 2, 1).is_ok());
    ASSERT_TRUE(add({.sender = 1, .message = 5, .offset = 0, .total = 3}, 2, 7).is_ok());
    const auto done = add({.sender = 1, .message = 5, .offset = 2, .total = 3}, 1, 8);
    ASSERT_TRUE(done.is_ok());
    ASSERT_TRUE(done.value().has_value());
    EXPECT_EQ(done.value()->payload.size(), 3u);
    EXPECT_EQ(done.value()->payload[0], std::byte{7});
}

struct WrongPart {
    const char* name;
    PartHeader part;
    size_t num_bytes;
};

class ReassemblyRefusal : public ReassemblyTest, public ::testing::WithParamInterface<WrongPart> {};

// Behind part one of message 4 of (sender 1, stream 2): 6 bytes of 10.
TEST_P(ReassemblyRefusal, forgets_the_message) {
    ASSERT_TRUE(
        add({.sender = 1, .stream = 2, .message = 4, .offset = 0, .total = 10}, 6, 1).is_ok());
    const WrongPart& wrong = GetParam();
    const auto refused = add(wrong.part, wrong.num_bytes, 2);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_THAT(refused.status().message(), HasSubstr("do not follow"));
    EXPECT_EQ(reassembly_.num_unfinished(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Parts, ReassemblyRefusal,
                         ::testing::Values(WrongPart{"gap", {1, 2, 4, 7, 10}, 3},
                                           WrongPart{"repeat", {1, 2, 4, 3, 10}, 3},
                                           WrongPart{"other_message", {1, 2, 5, 6, 10}, 4},
                                           WrongPart{"other_total", {1, 2, 4, 6, 11}, 4},
                                           WrongPart{"too_long", {1, 2, 4, 6, 10}, 5},
                                           WrongPart{"empty", {1, 2, 4, 6, 10}, 0}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(ReassemblyTest, refuses_parts_without_a_beginning_short_headers_and_huge_totals) {
    EXPECT_THAT(add({.sender = 1, .offset = 6, .total = 10}, 4, 1).status().message(),
                HasSubstr("4 bytes at 6 of 10 do not follow"));
    EXPECT_THAT(reassembly_.add(Bytes(23), payload_).status().message(),
                HasSubstr("header is 23 bytes, expected 24"));
    // A first part whose own header is cut.
    EXPECT_THAT(reassembly_.add(Bytes(87), payload_).status().message(),
                HasSubstr("63 header bytes, expected 64"));
    EXPECT_THAT(add({.offset = 0, .total = 0xffffffffu}, 4, 1).status().message(),
                HasSubstr("4294967295 payload bytes, the limit is 16777216"));
    EXPECT_EQ(reassembly_.num_unfinished(), 0u);
}

TEST_F(ReassemblyTest, drops_what_a_dead_sender_left_after_ten_seconds) {
    ASSERT_TRUE(add({.sender = 1, .offset = 0, .total = 4}, 2, 1).is_ok());
    clock_.advance(std::chrono::seconds(11));
    ASSERT_TRUE(add({.sender = 2, .offset = 0, .total = 4}, 2, 1).is_ok());
    EXPECT_EQ(reassembly_.num_unfinished(), 1u);
}

TEST_F(ReassemblyTest, holds_a_bounded_number_of_unfinished_messages) {
    for (uint64_t sender = 0; sender < 256; ++sender) {
        ASSERT_TRUE(add({.sender = sender, .offset = 0, .total = 4}, 2, 1).is_ok());
    }
    const auto refused = add({.sender = 256, .offset = 0, .total = 4}, 2, 1);
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_TRUE(add({.sender = 255, .offset = 2, .total = 4}, 2, 1).is_ok());
}

}  // namespace
}  // namespace k3pod::ucx
