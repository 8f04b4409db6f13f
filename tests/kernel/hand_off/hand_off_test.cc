// The hand-off with a real GPU at one end and host threads at the other.

#include "k3pod/kernels/hand_off.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "k3pod/ops/combine.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::GpuTest;
using ::testing::HasSubstr;
using testing::poisoned_on_gpu;
using testing::to_gpu;

constexpr Nanoseconds kLong = std::chrono::seconds(20);

// A GPU and a host that share the memory of one hand-off.
class Link {
  public:
    explicit Link(const HandOffShape& shape)
        : memory_(PinnedBuffer::create(hand_off_layout(shape).size_bytes).value()),
          state_(DeviceBuffer::create(kernels::hand_off_state_bytes()).value()),
          host_(HandOff::create(shape, {memory_.data(), static_cast<size_t>(memory_.size_bytes())},
                                clock_)
                    .value()) {
        EXPECT_TRUE(fill_device(state_.data(), 0, state_.size_bytes()).is_ok());
        testing::finish_copies();
    }
    kernels::HandOffLink gpu() const {
        return {.shape = host_->shape(), .shared = memory_.data(), .state = state_.data()};
    }
    HandOff& host() { return *host_; }
    HandOffRequest request(int32_t exchange_idx) {
        return host_->wait_request(exchange_idx, clock_.now() + kLong).value();
    }

  private:
    SteadyClock clock_;
    PinnedBuffer memory_;
    DeviceBuffer state_;
    std::unique_ptr<HandOff> host_;
};

// One step's rows and what the parts answer, the same for every exchange.
struct Rows {
    Rows(const HandOffShape& shape, int32_t num_rows, testing::RandomValues& random)
        : latents(random.normals(int64_t{num_rows} * shape.latent)),
          weights(random.normals(int64_t{num_rows} * shape.top_k)),
          local(random.normals(int64_t{num_rows} * shape.latent)) {
        for (size_t i = 0; i < weights.size(); ++i) {
            experts.push_back(static_cast<uint16_t>(random.integer(0, 895)));
        }
        for (int32_t part = 0; part < shape.num_parts; ++part) {
            formats.push_back(static_cast<PartFormat>(random.integer(0, 2)));
            f32.push_back(random.normals(std::ssize(latents)));
            bf16.emplace_back();
            for (const float v : f32.back()) bf16.back().push_back(to_bf16(v));
        }
    }
    // [rows, L], summed by the CPU.
    std::vector<float> expected(const HandOffShape& shape, bool has_local) const {
        std::vector<ops::PartialRows> parts;
        if (has_local) parts.push_back({.f32 = local});
        for (size_t p = 0; p < formats.size(); ++p) {
            if (formats[p] == PartFormat::kF32) parts.push_back({.f32 = f32[p]});
            if (formats[p] == PartFormat::kBf16) parts.push_back({.bf16 = bf16[p]});
        }
        std::vector<float> out(latents.size());
        ops::combine({.rows = static_cast<int32_t>(out.size()) / shape.latent,
                      .latent = shape.latent,
                      .parts = parts,
                      .out = out});
        return out;
    }
    void answer(HandOff& host, const HandOffRequest& request, int32_t part) const {
        const auto p = static_cast<size_t>(part);
        if (formats[p] == PartFormat::kF32) {
            std::ranges::copy(f32[p], host.part_f32(request, part).begin());
        } else if (formats[p] == PartFormat::kBf16) {
            std::ranges::copy(bf16[p], host.part_bf16(request, part).begin());
        }
        host.complete(request, part, formats[p]);
    }

    std::vector<float> latents, weights, local;
    std::vector<uint16_t> experts;
    std::vector<PartFormat> formats;
    std::vector<std::vector<float>> f32;
    std::vector<std::vector<Bf16>> bf16;
};

// The kernels of a step over one set of rows: every exchange dispatches and combines.
class Step {
  public:
    Step(const Link& link, const Rows& rows, int32_t bucket, int32_t num_rows, bool has_local)
        : link_(link.gpu()),
          bucket_(bucket),
          latents_(to_gpu(rows.latents)),
          experts_(to_gpu(rows.experts)),
          weights_(to_gpu(rows.weights)),
          local_(to_gpu(rows.local)),
          num_rows_(to_gpu(std::vector<int32_t>{num_rows})),
          has_local_(has_local) {
        for (int32_t i = 0; i < link_.shape.num_exchanges; ++i) {
            out_.push_back(poisoned_on_gpu<float>(int64_t{bucket} * link_.shape.latent));
        }
    }
    Status launch(CudaStream stream) const {
        K3POD_TRY(kernels::hand_off_begin(link_, stream));
        for (int32_t i = 0; i < link_.shape.num_exchanges; ++i) {
            K3POD_TRY(kernels::hand_off_dispatch({.link = link_,
                                                  .exchange_idx = i,
                                                  .rows = bucket_,
                                                  .num_rows = num_rows_.as<int32_t>(),
                                                  .latents_f32 = latents_.as<float>(),
                                                  .experts = experts_.as<uint16_t>(),
                                                  .weights = weights_.as<float>()},
                                                 stream));
            K3POD_TRY(kernels::hand_off_combine({.link = link_,
                                                 .exchange_idx = i,
                                                 .rows = bucket_,
                                                 .num_rows = num_rows_.as<int32_t>(),
                                                 .local = has_local_ ? local_.as<float>() : nullptr,
                                                 .out = out_[static_cast<size_t>(i)].as<float>()},
                                                stream));
        }
        return Status::ok();
    }
    std::vector<float> out(int32_t exchange_idx) const {
        return from_gpu<float>(out_[static_cast<size_t>(exchange_idx)]);
    }

  private:
    kernels::HandOffLink link_;
    int32_t bucket_;
    DeviceBuffer latents_, experts_, weights_, local_, num_rows_;
    bool has_local_;
    std::vector<DeviceBuffer> out_;
};

struct Case {
    const char* name;
    HandOffShape shape;
    int32_t bucket;
    int32_t num_rows;
    bool has_local;
};

class HandOffKernels : public GpuTest {
  protected:
    testing::RandomValues random;
    ::testing::ScopedTrace trace{__FILE__, __LINE__, random.trace()};
};
class HandOffShapes : public HandOffKernels, public ::testing::WithParamInterface<Case> {};

TEST_P(HandOffShapes, pass_rows_and_sum_answers_as_the_cpu_does) {
    const auto& [name, shape, bucket, num_rows, has_local] = GetParam();
    Link link(shape);
    const Rows rows(shape, bucket, random);
    const Step step(link, rows, bucket, num_rows, has_local);
    link.host().begin_step(kLong);
    ASSERT_TRUE(step.launch(stream()).is_ok());
    const auto values = static_cast<size_t>(int64_t{num_rows} * shape.latent);
    const auto picks = static_cast<size_t>(int64_t{num_rows} * shape.top_k);
    for (int32_t i = 0; i < shape.num_exchanges; ++i) {
        const HandOffRequest request = link.request(i);
        ASSERT_EQ(request.rows, num_rows);
        for (size_t v = 0; v < values; ++v) {
            ASSERT_EQ(request.latents[v].bits, to_bf16(rows.latents[v]).bits) << v;
        }
        ASSERT_TRUE(std::ranges::equal(request.experts, std::span(rows.experts).first(picks)));
        ASSERT_TRUE(std::ranges::equal(request.weights, std::span(rows.weights).first(picks)));
        for (int32_t part = shape.num_parts - 1; part >= 0; --part) {
            rows.answer(link.host(), request, part);
        }
    }
    synchronize();
    ASSERT_TRUE(link.host().end_step().is_ok());
    std::vector<float> expected = rows.expected(shape, has_local);
    std::fill(expected.begin() + static_cast<int64_t>(values), expected.end(), 0.0f);
    for (int32_t i = 0; i < shape.num_exchanges; ++i) ASSERT_EQ(step.out(i), expected) << i;
}

constexpr HandOffShape shape_of(int32_t latent, int32_t top_k, int32_t parts) {
    return {
        .max_rows = 64, .latent = latent, .top_k = top_k, .num_exchanges = 3, .num_parts = parts};
}

INSTANTIATE_TEST_SUITE_P(
    All, HandOffShapes,
    ::testing::Values(Case{"k3_one_row", shape_of(3584, 16, 1), 1, 1, false},
                      Case{"k3_eight_parts", shape_of(3584, 16, 8), 1, 1, true},
                      Case{"k3_four_rows", shape_of(3584, 16, 8), 4, 3, false},
                      Case{"k3_more_blocks_than_poll", shape_of(3584, 16, 9), 64, 50, true},
                      Case{"k3_tiny", shape_of(128, 4, 2), 16, 16, true},
                      Case{"odd_latent", shape_of(37, 3, 15), 5, 4, true},
                      Case{"one_value", shape_of(1, 1, 1), 2, 1, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(HandOffKernels, replay_one_graph_with_the_same_bits) {
    const HandOffShape shape = shape_of(3584, 16, 8);
    Link link(shape);
    const Rows rows(shape, 4, random);
    const Step step(link, rows, 4, 4, true);
    const auto graph =
        DeviceGraph::capture(stream(), [&](CudaStream s) { return step.launch(s); }).value();
    std::vector<std::jthread> holders;
    constexpr int kReplays = 1000;
    std::atomic<int> begun = 0;
    std::atomic<int> idle_holders = 0;
    for (int32_t part = 0; part < shape.num_parts; ++part) {
        holders.emplace_back([&, part] {
            for (int replay = 1; replay <= kReplays; ++replay) {
                while (begun.load(std::memory_order_acquire) < replay) std::this_thread::yield();
                for (int32_t i = 0; i < shape.num_exchanges; ++i) {
                    rows.answer(link.host(), link.request(i), part);
                }
                ++idle_holders;
            }
        });
    }
    const std::vector<float> expected = rows.expected(shape, true);
    for (int replay = 1; replay <= kReplays; ++replay) {
        link.host().begin_step(kLong);
        begun.store(replay, std::memory_order_release);
        ASSERT_TRUE(graph.launch(stream()).is_ok());
        synchronize();
        while (idle_holders.load() < replay * shape.num_parts) std::this_thread::yield();
        ASSERT_TRUE(link.host().end_step().is_ok());
        ASSERT_EQ(step.out(replay % shape.num_exchanges), expected) << "replay " << replay;
    }
}

TEST_F(HandOffKernels, give_up_when_the_host_does_not_answer) {
    const HandOffShape shape = shape_of(3584, 16, 2);
    for (const int32_t bucket : {1, 20}) {
        Link link(shape);
        const Rows rows(shape, bucket, random);
        const Step step(link, rows, bucket, bucket, false);
        link.host().begin_step(std::chrono::milliseconds(20));
        ASSERT_TRUE(step.launch(stream()).is_ok());
        rows.answer(link.host(), link.request(0), 0);
        synchronize();
        const Status lost = link.host().end_step();
        EXPECT_EQ(lost.code(), Code::kDeadlineExceeded);
        EXPECT_THAT(lost.message(), HasSubstr("exchange 0 of 3 without the answer of part 1 of 2"));
        for (int32_t i = 0; i < shape.num_exchanges; ++i) {
            for (const float v : step.out(i)) ASSERT_EQ(v, 0.0f);
        }
    }
}

TEST_F(HandOffKernels, stop_when_aborted_and_work_in_the_next_step) {
    const HandOffShape shape = shape_of(3584, 16, 2);
    for (const int32_t bucket : {1, 20}) {
        Link link(shape);
        const Rows rows(shape, bucket, random);
        const Step step(link, rows, bucket, bucket, false);
        link.host().begin_step(kLong);
        ASSERT_TRUE(step.launch(stream()).is_ok());
        for (int32_t part = 0; part < 2; ++part) rows.answer(link.host(), link.request(0), part);
        const HandOffRequest never_answered = link.request(1);
        EXPECT_EQ(never_answered.rows, bucket);
        link.host().abort();
        synchronize();
        const Status lost = link.host().end_step();
        EXPECT_EQ(lost.code(), Code::kCancelled);
        EXPECT_THAT(lost.message(), HasSubstr("exchange 1 of 3"));

        link.host().begin_step(kLong);
        ASSERT_TRUE(step.launch(stream()).is_ok());
        for (int32_t i = 0; i < shape.num_exchanges; ++i) {
            const HandOffRequest request = link.request(i);
            for (int32_t part = 0; part < 2; ++part) rows.answer(link.host(), request, part);
        }
        synchronize();
        EXPECT_TRUE(link.host().end_step().is_ok());
        ASSERT_EQ(step.out(2), rows.expected(shape, false));
    }
}

TEST_F(HandOffKernels, refuse_shapes_that_the_link_does_not_have) {
    const HandOffShape shape = shape_of(64, 2, 1);
    Link link(shape);
    const DeviceBuffer out = poisoned_on_gpu<float>(64 * 65);
    const auto refusal = [&](int32_t exchange_idx, int32_t rows) {
        const Status status = kernels::hand_off_combine({.link = link.gpu(),
                                                         .exchange_idx = exchange_idx,
                                                         .rows = rows,
                                                         .out = out.as<float>()},
                                                        stream());
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        return status.message();
    };
    EXPECT_THAT(refusal(0, 65), HasSubstr("65 rows, they must be in [1, 64]"));
    EXPECT_THAT(refusal(3, 1), HasSubstr("exchange 3 of 3"));
    const Status neither = kernels::hand_off_dispatch({.link = link.gpu(), .rows = 1}, stream());
    EXPECT_THAT(neither.message(), HasSubstr("exactly one"));
}

}  // namespace
}  // namespace k3pod
