#include "k3pod/device/hand_off.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "k3pod/device/matrix.h"
#include "tests/support/fake_clock.h"
#include "tests/support/played_gpu.h"

namespace k3pod {
namespace {

using ::testing::ElementsAre;
using testing::FakeClock;
using ::testing::HasSubstr;
using testing::PlayedGpu;

constexpr Nanoseconds kLong = std::chrono::seconds(60);
constexpr Nanoseconds kShort = std::chrono::milliseconds(1);
constexpr HandOffShape kShape{
    .max_rows = 4, .latent = 2, .top_k = 2, .num_exchanges = 3, .num_parts = 2};

struct SharedMemory {
    explicit SharedMemory(const HandOffShape& shape)
        : buffer(hand_off_layout(shape).size_bytes + 128) {}
    std::span<std::byte> bytes() {
        const auto address = reinterpret_cast<uintptr_t>(buffer.data());
        return {buffer.data() + (128 - address % 128) % 128,
                static_cast<size_t>(buffer.size_bytes() - 128)};
    }
    HostBuffer buffer;
};

class HandOffTest : public ::testing::Test {
  protected:
    // One row [1, 2] whose picks are 7 and 9, weighted 0.5 and 0.25.
    void dispatch(int32_t exchange_idx) {
        gpu.dispatch(exchange_idx, 1, std::vector{to_bf16(1.0f), to_bf16(2.0f)},
                     std::vector<uint16_t>{7, 9}, std::vector{0.5f, 0.25f});
    }
    HandOffRequest request(int32_t exchange_idx) {
        return hand_off->wait_request(exchange_idx, clock.now() + kLong).value();
    }
    void answer(const HandOffRequest& request, int32_t part, float value) {
        std::ranges::fill(hand_off->part_f32(request, part), value);
        hand_off->complete(request, part, PartFormat::kF32);
    }

    SteadyClock clock;
    SharedMemory memory{kShape};
    std::unique_ptr<HandOff> hand_off = HandOff::create(kShape, memory.bytes(), clock).value();
    PlayedGpu gpu{*hand_off};
};

TEST_F(HandOffTest, passes_the_rows_as_published) {
    hand_off->begin_step(kLong);
    gpu.begin();
    const Bf16 one = to_bf16(1.0f);
    const Bf16 two = to_bf16(2.0f);
    gpu.dispatch(0, 2, std::vector{one, two, two, one}, std::vector<uint16_t>{3, 0, 1, 895},
                 std::vector{0.5f, 0.25f, 1.0f, 2.0f});
    const HandOffRequest got = request(0);
    EXPECT_EQ(got.rows, 2);
    EXPECT_EQ(got.exchange_idx, 0);
    ASSERT_EQ(got.latents.size(), 4u);
    EXPECT_EQ(got.latents[1].bits, two.bits);
    EXPECT_EQ(got.latents[3].bits, one.bits);
    EXPECT_THAT(got.experts, ElementsAre(3, 0, 1, 895));
    EXPECT_THAT(got.weights, ElementsAre(0.5f, 0.25f, 1.0f, 2.0f));
}

TEST_F(HandOffTest, sums_parts_of_either_format_and_skips_empty_ones) {
    hand_off->begin_step(kLong);
    gpu.begin();
    dispatch(0);
    HandOffRequest got = request(0);
    answer(got, 0, 0.1f);
    hand_off->part_bf16(got, 1)[0] = to_bf16(3.0f);
    hand_off->part_bf16(got, 1)[1] = to_bf16(4.0f);
    hand_off->complete(got, 1, PartFormat::kBf16);
    EXPECT_THAT(gpu.combine(0, 1), ElementsAre(0.1f + 3.0f, 0.1f + 4.0f));
    dispatch(1);
    got = request(1);
    answer(got, 0, 5.0f);
    hand_off->complete(got, 1, PartFormat::kNone);
    EXPECT_THAT(gpu.combine(1, 1), ElementsAre(5.0f, 5.0f));
}

TEST_F(HandOffTest, answers_every_exchange_of_many_steps) {
    constexpr int kSteps = 50;
    std::atomic<int> begun_steps = 0, done_steps = 0;
    std::thread device([&] {
        for (int step = 0; step < kSteps; ++step) {
            while (begun_steps.load(std::memory_order_acquire) <= step) std::this_thread::yield();
            gpu.begin();
            for (int32_t i = 0; i < kShape.num_exchanges; ++i) {
                dispatch(i);
                const auto expected = static_cast<float>(100 * step + i);
                ASSERT_THAT(gpu.combine(i, 1), ElementsAre(expected + 0.5f, expected + 0.5f));
            }
            done_steps.store(step + 1, std::memory_order_release);
        }
    });
    for (int step = 0; step < kSteps; ++step) {
        hand_off->begin_step(kLong);
        begun_steps.store(step + 1, std::memory_order_release);
        for (int32_t i = 0; i < kShape.num_exchanges; ++i) {
            const HandOffRequest got = request(i);
            answer(got, 1, 0.5f);
            answer(got, 0, static_cast<float>(100 * step + i));
        }
        while (done_steps.load(std::memory_order_acquire) <= step) std::this_thread::yield();
        ASSERT_TRUE(hand_off->end_step().is_ok());
    }
    device.join();
}

TEST_F(HandOffTest, takes_a_late_reply_within_the_limit) {
    hand_off->begin_step(kLong);
    gpu.begin();
    dispatch(0);
    std::vector<float> sum;
    std::thread device([&] { sum = gpu.combine(0, 1); });
    const HandOffRequest got = request(0);
    answer(got, 1, 2.0f);
    answer(got, 0, 1.0f);
    device.join();
    EXPECT_THAT(sum, ElementsAre(3.0f, 3.0f));
    EXPECT_TRUE(hand_off->end_step().is_ok());
}

TEST_F(HandOffTest, names_the_exchange_and_part_that_were_never_answered) {
    hand_off->begin_step(kLong);
    gpu.begin();
    dispatch(0);
    HandOffRequest got = request(0);
    answer(got, 0, 1.0f);
    answer(got, 1, 1.0f);
    gpu.combine(0, 1);
    hand_off->begin_step(kShort);
    gpu.begin();
    for (int32_t i = 0; i < 2; ++i) {
        dispatch(i);
        got = request(i);
        answer(got, 0, 1.0f);
        if (i == 0) answer(got, 1, 1.0f);
        gpu.combine(i, 1);
    }
    const Status lost = hand_off->end_step();
    EXPECT_EQ(lost.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(lost.message(), HasSubstr("exchange 1 of 3 without the answer of part 1 of 2"));
    EXPECT_THAT(lost.message(), HasSubstr("0.001 s"));
}

TEST_F(HandOffTest, publishes_nothing_more_in_a_step_that_was_given_up) {
    hand_off->begin_step(kShort);
    gpu.begin();
    dispatch(0);
    EXPECT_THAT(gpu.combine(0, 1), ElementsAre(0.0f, 0.0f));
    dispatch(1);
    EXPECT_THAT(gpu.combine(1, 1), ElementsAre(0.0f, 0.0f));
    const auto next = hand_off->wait_request(1, clock.now() + kLong);
    EXPECT_EQ(next.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(next.status().message(), HasSubstr("exchange 0 of 3"));
}

TEST_F(HandOffTest, ends_both_sides_when_aborted) {
    hand_off->begin_step(kLong);
    gpu.begin();
    dispatch(0);
    std::thread device([&] { gpu.combine(0, 1); });
    std::thread host([&] {
        const auto next = hand_off->wait_request(1, clock.now() + kLong);
        EXPECT_EQ(next.status().code(), Code::kCancelled);
    });
    hand_off->abort();
    device.join();
    host.join();
    EXPECT_TRUE(gpu.is_lost());
    EXPECT_EQ(hand_off->end_step().code(), Code::kCancelled);
    EXPECT_THAT(hand_off->end_step().message(), HasSubstr("exchange 0 of 3"));
}

TEST_F(HandOffTest, starts_afresh_after_an_abort) {
    hand_off->begin_step(kLong);
    gpu.begin();
    dispatch(0);
    const HandOffRequest late = request(0);
    hand_off->abort();
    gpu.combine(0, 1);
    hand_off->begin_step(kShort);
    gpu.begin();
    EXPECT_TRUE(hand_off->end_step().is_ok());
    dispatch(0);
    const HandOffRequest got = request(0);
    answer(late, 0, 99.0f);  // of the step before: answers nothing
    answer(got, 1, 1.0f);
    EXPECT_THAT(gpu.combine(0, 1), ElementsAre(0.0f, 0.0f));
    EXPECT_THAT(hand_off->end_step().message(), HasSubstr("part 0 of 2"));
}

TEST_F(HandOffTest, says_which_exchange_the_gpu_did_not_reach) {
    FakeClock standing;
    SharedMemory own(kShape);
    const auto idle = HandOff::create(kShape, own.bytes(), standing).value();
    idle->begin_step(kLong);
    const auto never = idle->wait_request(2, standing.now());
    EXPECT_EQ(never.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(never.status().message(), HasSubstr("did not reach exchange 2 of 3"));
}

TEST(HandOffParts, are_answered_by_a_thread_each) {
    constexpr HandOffShape kWide{
        .max_rows = 1, .latent = 64, .top_k = 1, .num_exchanges = 1, .num_parts = 8};
    const SteadyClock clock;
    SharedMemory memory(kWide);
    const auto hand_off = HandOff::create(kWide, memory.bytes(), clock).value();
    PlayedGpu gpu(*hand_off);
    hand_off->begin_step(kLong);
    gpu.begin();
    std::vector<std::jthread> holders;
    for (int32_t part = 0; part < 8; ++part) {
        holders.emplace_back([&, part] {
            const auto got = hand_off->wait_request(0, clock.now() + kLong).value();
            std::ranges::fill(hand_off->part_f32(got, part), static_cast<float>(1 << part));
            hand_off->complete(got, part, PartFormat::kF32);
        });
    }
    gpu.dispatch(0, 1, std::vector<Bf16>(64), std::vector<uint16_t>{0}, std::vector{1.0f});
    EXPECT_EQ(gpu.combine(0, 1), std::vector<float>(64, 255.0f));
}

TEST(HandOffLayouts, keep_words_of_two_writers_apart) {
    const HandOffLayout layout = hand_off_layout(
        {.max_rows = 3, .latent = 100, .top_k = 5, .num_exchanges = 92, .num_parts = 2});
    EXPECT_EQ(layout.replies, 0);
    EXPECT_EQ(layout.abort, 120);
    EXPECT_EQ(layout.step_base, 128);
    EXPECT_EQ(layout.limit_ns, 136);
    EXPECT_EQ(layout.request, 256);
    EXPECT_EQ(layout.outcome, 384);
    EXPECT_EQ(layout.latents, 512);
    EXPECT_EQ(layout.experts, 1152);  // 600 bytes of rows, rounded up to 640
    EXPECT_EQ(layout.weights, 1280);
    EXPECT_EQ(layout.parts, 1408);
    EXPECT_EQ(layout.part_bytes, 1280);  // 1,200 bytes
    EXPECT_EQ(layout.size_bytes, 3968);
}

TEST(HandOffShapes, are_refused_with_the_limit) {
    const SteadyClock clock;
    SharedMemory memory(kShape);
    const auto refusal = [&](HandOffShape shape) {
        const auto made = HandOff::create(shape, memory.bytes(), clock);
        EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
        return made.status().message();
    };
    HandOffShape shape = kShape;
    shape.num_parts = 16;
    EXPECT_THAT(refusal(shape), HasSubstr("num_parts is 16, it must be in [1, 15]"));
    shape = kShape;
    shape.max_rows = 65536;
    EXPECT_THAT(refusal(shape), HasSubstr("max_rows is 65536"));
    shape = kShape;
    shape.latent = 0;
    EXPECT_THAT(refusal(shape), HasSubstr("latent is 0"));
    shape = kShape;
    shape.max_rows = 1000;
    EXPECT_THAT(refusal(shape), HasSubstr("the shared memory has"));
}

}  // namespace
}  // namespace k3pod
