#include "k3pod/state/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace k3pod {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr StateShape kShape{.num_kda_layers = 2,
                            .kda_heads = 3,
                            .kda_head_dim = 4,
                            .conv_kernel = 4,
                            .num_mla_layers = 2,
                            .mla_cache_width = 6,
                            .num_slots = 2,
                            .num_pages = 5};

bool is_zero(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0f; });
}

bool is_zero(std::span<const Bf16> values) {
    return std::all_of(values.begin(), values.end(), [](Bf16 v) { return v.bits == 0; });
}

// Every float and bf16 that the sequence owns.
void scribble(StateStore& store, const SequenceState& state) {
    for (int32_t layer = 0; layer < kShape.num_kda_layers; ++layer) {
        std::ranges::fill(store.recurrent(layer, state.slot), 7.0f);
        std::ranges::fill(store.conv_window(layer, state.slot), 8.0f);
    }
    for (int32_t layer = 0; layer < kShape.num_mla_layers; ++layer) {
        for (const int32_t page : state.pages)
            std::ranges::fill(store.page(layer, page), Bf16{0x3f80});
    }
}

TEST(StateStore, sizes_of_the_real_model_are_those_of_its_architecture) {
    const StateShape k3{.num_kda_layers = 69,
                        .kda_heads = 96,
                        .kda_head_dim = 128,
                        .conv_kernel = 4,
                        .num_mla_layers = 24,
                        .mla_cache_width = 576,
                        .num_slots = 1,
                        .num_pages = 0};
    // 434,110,464 B of fp32 recurrent state and twice the 15,261,696 B of a bf16 conv window.
    EXPECT_EQ(StateStore::bytes(k3), 434'110'464 + 30'523'392);
    StateShape paged = k3;
    paged.num_slots = 0;
    paged.num_pages = 1;
    EXPECT_EQ(StateStore::bytes(paged), 64 * 27'648);
}

TEST(StateStore, gives_a_slot_and_the_pages_that_the_tokens_need) {
    StateStore store(kShape);
    EXPECT_EQ(store.num_free_slots(), 2);
    EXPECT_EQ(store.num_free_pages(), 5);
    Result<SequenceState> a = store.acquire(65);
    ASSERT_TRUE(a) << a.status().to_string();
    EXPECT_EQ(a->pages.size(), 2u);
    EXPECT_EQ(store.num_free_slots(), 1);
    EXPECT_EQ(store.num_free_pages(), 3);
    Result<SequenceState> b = store.acquire(64);
    ASSERT_TRUE(b) << b.status().to_string();
    EXPECT_EQ(b->pages.size(), 1u);
    EXPECT_NE(b->slot, a->slot);
    EXPECT_EQ(std::ranges::count(a->pages, b->pages[0]), 0);
    EXPECT_EQ(store.num_free_slots(), 0);
    EXPECT_EQ(store.num_free_pages(), 2);
}

TEST(StateStore, needs_no_page_for_no_token_and_one_for_the_first) {
    EXPECT_EQ(StateStore::pages_for(0), 0);
    EXPECT_EQ(StateStore::pages_for(1), 1);
    EXPECT_EQ(StateStore::pages_for(64), 1);
    EXPECT_EQ(StateStore::pages_for(65), 2);
    StateStore store(kShape);
    Result<SequenceState> state = store.acquire(0);
    ASSERT_TRUE(state);
    EXPECT_TRUE(state->pages.empty());
    EXPECT_EQ(store.num_free_pages(), 5);
}

TEST(StateStore, blocks_of_layers_slots_and_pages_do_not_overlap) {
    StateStore store(kShape);
    Result<SequenceState> a = store.acquire(128);
    Result<SequenceState> b = store.acquire(128);
    ASSERT_TRUE(a && b);
    scribble(store, *a);
    for (int32_t layer = 0; layer < kShape.num_kda_layers; ++layer) {
        EXPECT_EQ(store.recurrent(layer, a->slot).size(), 3u * 4 * 4);
        EXPECT_EQ(store.conv_window(layer, a->slot).size(), 3u * 3 * 12);
        EXPECT_THAT(store.recurrent(layer, a->slot), Each(7.0f));
        EXPECT_TRUE(is_zero(store.recurrent(layer, b->slot)));
        EXPECT_TRUE(is_zero(store.conv_window(layer, b->slot)));
    }
    for (int32_t layer = 0; layer < kShape.num_mla_layers; ++layer) {
        for (const int32_t page : b->pages) {
            EXPECT_EQ(store.page(layer, page).size(), 64u * 6);
            EXPECT_TRUE(is_zero(store.page(layer, page)));
        }
    }
    std::ranges::fill(store.recurrent(0, b->slot), 1.0f);
    EXPECT_TRUE(is_zero(store.recurrent(1, b->slot)));
}

TEST(StateStore, clears_a_recycled_slot_and_its_pages_before_handing_them_out) {
    StateStore store(kShape);
    for (int round = 0; round < 2; ++round) {
        Result<SequenceState> a = store.acquire(128);
        Result<SequenceState> b = store.acquire(192);
        ASSERT_TRUE(a && b);
        for (const SequenceState* state : {&*a, &*b}) {
            for (int32_t layer = 0; layer < 2; ++layer) {
                EXPECT_TRUE(is_zero(store.recurrent(layer, state->slot)));
                EXPECT_TRUE(is_zero(store.conv_window(layer, state->slot)));
                for (const int32_t page : state->pages)
                    EXPECT_TRUE(is_zero(store.page(layer, page)));
            }
            scribble(store, *state);
        }
        store.release(std::move(*a));
        store.release(std::move(*b));
    }
}

TEST(StateStore, release_gives_everything_back_and_empties_the_state) {
    StateStore store(kShape);
    Result<SequenceState> state = store.acquire(320);
    ASSERT_TRUE(state);
    EXPECT_EQ(store.num_free_pages(), 0);
    store.release(std::move(*state));
    EXPECT_EQ(state->slot, -1);
    EXPECT_TRUE(state->pages.empty());
    EXPECT_EQ(store.num_free_slots(), 2);
    EXPECT_EQ(store.num_free_pages(), 5);
}

TEST(StateStore, names_slots_when_they_run_out) {
    StateStore store(kShape);
    ASSERT_TRUE(store.acquire(1) && store.acquire(1));
    const Result<SequenceState> third = store.acquire(1);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(third.status().message(), HasSubstr("slots: all 2 are in use"));
    EXPECT_EQ(store.num_free_pages(), 3);
}

TEST(StateStore, names_pages_when_they_run_out_and_takes_nothing) {
    StateStore store(kShape);
    ASSERT_TRUE(store.acquire(192));
    const Result<SequenceState> second = store.acquire(129);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(second.status().message(),
                HasSubstr("pages: 129 tokens need 3 pages, 2 of 5 are free"));
    EXPECT_EQ(store.num_free_slots(), 1);
    EXPECT_EQ(store.num_free_pages(), 2);
    EXPECT_TRUE(store.acquire(128));
}

TEST(StateStoreDeath, aborts_when_a_state_is_released_twice) {
    StateStore store(kShape);
    Result<SequenceState> state = store.acquire(64);
    ASSERT_TRUE(state);
    SequenceState copy = *state;
    store.release(std::move(*state));
    EXPECT_DEATH(store.release(std::move(*state)), "owns no slot");
    EXPECT_DEATH(store.release(std::move(copy)), "slot released twice");
}

TEST(StateStoreDeath, aborts_when_a_page_is_released_twice) {
    StateStore store(kShape);
    Result<SequenceState> a = store.acquire(64);
    Result<SequenceState> b = store.acquire(64);
    ASSERT_TRUE(a && b);
    SequenceState mixed{.slot = b->slot, .pages = a->pages};
    store.release(std::move(*a));
    EXPECT_DEATH(store.release(std::move(mixed)), "page released twice");
}

}  // namespace
}  // namespace k3pod
