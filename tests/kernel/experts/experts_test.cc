// Frames through the grouped experts, against the CPU twin.

#include "k3pod/kernels/experts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "k3pod/ops/mlp.h"
#include "tests/support/gpu_matrix.h"

namespace k3pod::testing {
namespace {

using enum WeightFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using wire::WireEntry;

constexpr ops::SituParams kSitu{4.0f, 25.0f};
// z and weights are exact, h is split as activations are.
constexpr double kBound = 2e-5;

struct HostShard {
    Matrix w1, w3, w2;
};

// Experts of one holder, on both sides. shards[e]: those of expert e, of all layers in a row.
class Experts {
  public:
    explicit Experts(int32_t latent) : latent_(latent) {}

    // The next expert, with shards of these widths.
    void add(WeightFormat format, const std::vector<int32_t>& widths, RandomValues& random) {
        host_.emplace_back();
        first_.push_back(static_cast<int32_t>(table_.size()));
        for (const int32_t width : widths) {
            host_.back().push_back({random_matrix(format, width, latent_, random),
                                    random_matrix(format, width, latent_, random),
                                    random_matrix(format, latent_, width, random)});
            const HostShard& shard = host_.back().back();
            table_.push_back({.w1 = put(shard.w1.view()),
                              .w3 = put(shard.w3.view()),
                              .w2 = put(shard.w2.view()),
                              .width = width,
                              .format = format});
            max_width_ = std::max(max_width_, width);
        }
        max_shards_ = std::max(max_shards_, static_cast<int32_t>(widths.size()));
    }

    kernels::ExpertTable table(int32_t num_layers = 1) {
        auto first = first_;
        first.push_back(static_cast<int32_t>(table_.size()));
        shards_on_gpu_ = to_gpu(table_);
        first_on_gpu_ = to_gpu(first);
        return {.shards = shards_on_gpu_.as<kernels::ExpertShard>(),
                .first_shard = first_on_gpu_.as<int32_t>(),
                .num_experts = static_cast<int32_t>(host_.size()) / num_layers,
                .latent = latent_,
                .max_width = max_width_,
                .max_shards_per_expert = max_shards_};
    }

    // The CPU's answer; expert e of the entries is host expert first_expert + e.
    std::vector<float> expected(int32_t rows, std::span<const Bf16> latents,
                                const std::vector<WireEntry>& entries, int32_t first_expert) const {
        std::vector<ops::WeightedRow> weighted;
        for (const WireEntry& e : entries) weighted.push_back({e.row, e.weight});
        std::vector<ops::ExpertGroup> groups;
        for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
            while (end < entries.size() && entries[end].expert == entries[begin].expert) ++end;
            const size_t expert = static_cast<size_t>(first_expert + entries[begin].expert);
            for (const HostShard& shard : host_[expert]) {
                groups.push_back({shard.w1.view(), shard.w3.view(), shard.w2.view(),
                                  std::span(weighted).subspan(begin, end - begin)});
            }
        }
        std::vector<float> scratch(
            static_cast<size_t>(ops::grouped_experts_scratch_floats(latent_, max_width_)));
        std::vector<float> out(static_cast<size_t>(rows * latent_));
        ops::grouped_experts({rows, latent_, latents, groups, kSitu, scratch, out});
        return out;
    }

    int32_t latent() const { return latent_; }

  private:
    kernels::ExpertMatrix put(const MatrixView& host) {
        on_gpu_.emplace_back(host);
        const MatrixView& view = on_gpu_.back().view();
        return {view.data, view.scales, view.global_scale};
    }

    int32_t latent_;
    int32_t max_width_ = 0, max_shards_ = 1;
    std::vector<std::vector<HostShard>> host_;
    std::vector<GpuMatrix> on_gpu_;
    std::vector<kernels::ExpertShard> table_;
    std::vector<int32_t> first_;
    DeviceBuffer shards_on_gpu_, first_on_gpu_;
};

struct Frame {
    int32_t rows;
    std::vector<WireEntry> entries;
};

// Each row takes `picks` different experts of `num_experts`.
Frame random_frame(int32_t rows, int32_t picks, int32_t num_experts, RandomValues& random) {
    Frame frame{rows, {}};
    for (int32_t row = 0; row < rows; ++row) {
        std::set<int32_t> chosen;
        while (static_cast<int32_t>(chosen.size()) < picks) {
            chosen.insert(random.integer(0, num_experts - 1));
        }
        for (const int32_t expert : chosen) {
            frame.entries.push_back({static_cast<uint16_t>(row), static_cast<uint16_t>(expert),
                                     random.uniform(0.01f, 1.0f)});
        }
    }
    std::sort(frame.entries.begin(), frame.entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.expert, a.row) < std::pair(b.expert, b.row);
    });
    return frame;
}

// A launch that is used for one frame after another, as a graph would be.
class Runner {
  public:
    Runner(const kernels::ExpertTable& table, int32_t max_rows, int32_t max_entries)
        : table_(table),
          max_rows_(max_rows),
          max_entries_(max_entries),
          workspace_(DeviceBuffer::create(
                         kernels::grouped_experts_workspace_bytes(table, max_rows, max_entries))
                         .value()) {
        EXPECT_TRUE(fill_device(workspace_.data(), 0, workspace_.size_bytes()).is_ok());
        finish_copies();
    }

    std::vector<float> run(const Frame& frame, std::span<const Bf16> latents, CudaStream stream,
                           int32_t layer = 0) {
        auto entries = frame.entries;
        entries.resize(static_cast<size_t>(max_entries_), WireEntry{0, 0, 1e9f});
        std::vector<Bf16> z(latents.begin(), latents.end());
        z.resize(static_cast<size_t>(max_rows_ * table_.latent), Bf16{0x7fc0});
        const std::vector<int32_t> counts = {layer, frame.rows,
                                             static_cast<int32_t>(frame.entries.size())};
        const DeviceBuffer in = to_gpu(z), picks = to_gpu(entries), numbers = to_gpu(counts);
        const DeviceBuffer out = poisoned_on_gpu<float>(int64_t{max_rows_} * table_.latent);
        const Status launched = kernels::grouped_experts({.table = table_,
                                                          .max_rows = max_rows_,
                                                          .max_entries = max_entries_,
                                                          .beta = kSitu.beta,
                                                          .linear_beta = kSitu.linear_beta,
                                                          .layer = numbers.as<int32_t>(),
                                                          .num_rows = numbers.as<int32_t>() + 1,
                                                          .num_entries = numbers.as<int32_t>() + 2,
                                                          .latents = in.as<Bf16>(),
                                                          .entries = picks.as<WireEntry>(),
                                                          .workspace = workspace_.data(),
                                                          .out = out.as<float>()},
                                                         stream);
        EXPECT_TRUE(launched.is_ok()) << launched.to_string();
        const auto now = DeviceEvent::create().value();
        EXPECT_TRUE(now.record(stream).is_ok());
        const Status done = now.synchronize();
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        return from_gpu<float>(out, int64_t{frame.rows} * table_.latent);
    }

  private:
    kernels::ExpertTable table_;
    int32_t max_rows_, max_entries_;
    DeviceBuffer workspace_;
};

class GroupedExperts : public GpuTest {
  protected:
    std::vector<Bf16> random_latents(int32_t rows, int32_t latent) {
        std::vector<Bf16> z;
        for (const float v : random.normals(int64_t{rows} * latent)) z.push_back(to_bf16(v));
        return z;
    }
    void compare(Experts& experts, Runner& runner, const Frame& frame, int32_t layer = 0,
                 int32_t first_expert = 0) {
        const auto z = random_latents(frame.rows, experts.latent());
        const auto want = experts.expected(frame.rows, z, frame.entries, first_expert);
        EXPECT_LE(relative_error(runner.run(frame, z, stream(), layer), want), kBound);
    }

    RandomValues random;
};

TEST_F(GroupedExperts, agree_with_the_cpu_frame_after_frame) {
    SCOPED_TRACE(random.trace());
    for (const int32_t latent : {96, 128, 416}) {
        Experts experts(latent);
        const std::vector<std::vector<int32_t>> widths = {{128}, {32}, {96, 32},
                                                          {384}, {64}, {160}};
        for (size_t e = 0; e < 12; ++e) {
            experts.add(e % 3 == 0 ? kNvfp4 : kMxfp4, widths[e % widths.size()], random);
        }
        Runner runner(experts.table(), 20, 80);
        for (const int32_t rows : {1, 2, 7, 20, 1, 13}) {
            SCOPED_TRACE("L=" + std::to_string(latent) + " rows=" + std::to_string(rows));
            compare(experts, runner, random_frame(rows, 4, 12, random));
        }
    }
}

TEST_F(GroupedExperts, agree_with_the_cpu_when_one_expert_has_every_row) {
    SCOPED_TRACE(random.trace());
    Experts experts(128);
    experts.add(kMxfp4, {96}, random);
    experts.add(kNvfp4, {64, 64}, random);
    Runner runner(experts.table(), 200, 400);
    for (const int32_t rows : {8, 9, 64, 200}) {
        SCOPED_TRACE(rows);
        compare(experts, runner, random_frame(rows, 2, 2, random));
    }
}

TEST_F(GroupedExperts, agree_with_the_cpu_at_k3s_shapes_whole_and_sliced) {
    SCOPED_TRACE(random.trace());
    for (const WeightFormat format : {kMxfp4, kNvfp4}) {
        for (const int32_t width : {3072, 384}) {
            SCOPED_TRACE(std::string(weight_format_name(format)) + " " + std::to_string(width));
            Experts experts(3584);
            for (int e = 0; e < 4; ++e) experts.add(format, {width}, random);
            Runner runner(experts.table(), 16, 48);
            for (const int32_t rows : {1, 8, 16}) {
                compare(experts, runner, random_frame(rows, 3, 4, random));
            }
        }
    }
}

TEST_F(GroupedExperts, read_the_layer_from_memory) {
    SCOPED_TRACE(random.trace());
    Experts experts(64);
    for (int i = 0; i < 3 * 4; ++i) experts.add(kMxfp4, {32}, random);
    Runner runner(experts.table(3), 4, 8);
    for (const int32_t layer : {2, 0, 1}) {
        compare(experts, runner, random_frame(4, 2, 4, random), layer, 4 * layer);
    }
}

TEST_F(GroupedExperts, leave_out_what_is_held_elsewhere_and_zero_rows_without_entries) {
    SCOPED_TRACE(random.trace());
    Experts experts(64);
    experts.add(kMxfp4, {32}, random);
    experts.add(kMxfp4, {}, random);
    experts.add(kMxfp4, {64}, random);
    Runner runner(experts.table(), 4, 8);
    const Frame frame{4, {{0, 0, 0.5f}, {0, 1, 0.25f}, {2, 1, 0.5f}, {3, 2, 1.0f}}};
    const auto z = random_latents(4, 64);
    const std::vector<float> out = runner.run(frame, z, stream());
    EXPECT_LE(relative_error(out, experts.expected(4, z, frame.entries, 0)), kBound);
    EXPECT_TRUE(std::all_of(out.begin() + 64, out.begin() + 192, [](float v) { return v == 0; }));
    const std::vector<float> none = runner.run({2, {}}, z, stream());
    EXPECT_TRUE(std::all_of(none.begin(), none.end(), [](float v) { return v == 0; }));
}

TEST_F(GroupedExperts, give_a_row_bits_that_do_not_depend_on_the_others) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kLatent = 256;
    Experts experts(kLatent);
    for (int e = 0; e < 10; ++e) experts.add(e % 2 == 0 ? kMxfp4 : kNvfp4, {160}, random);
    const kernels::ExpertTable table = experts.table();
    Runner small(table, 8, 32), large(table, 64, 300);
    const Frame frame = random_frame(8, 4, 10, random);
    const auto z = random_latents(8, kLatent);
    const std::vector<float> together = small.run(frame, z, stream());
    for (int replay = 0; replay < 20; ++replay) ASSERT_EQ(small.run(frame, z, stream()), together);
    EXPECT_EQ(large.run(frame, z, stream()), together);
    for (uint16_t row = 0; row < 8; ++row) {
        Frame alone{1, {}};
        for (WireEntry e : frame.entries) {
            if (e.row != row) continue;
            e.row = 0;
            alone.entries.push_back(e);
        }
        const auto its_z = std::span(z).subspan(size_t{row} * kLatent, kLatent);
        const std::vector<float> out = small.run(alone, its_z, stream());
        EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin() + row * kLatent)) << row;
    }
}

TEST_F(GroupedExperts, refuse_a_latent_that_is_no_multiple_of_32) {
    Experts experts(64);
    experts.add(kMxfp4, {32}, random);
    kernels::GroupedExpertsArgs args;
    args.table = experts.table();
    args.table.latent = 72;
    args.max_rows = args.max_entries = 1;
    EXPECT_THAT(kernels::grouped_experts(args, stream()).message(),
                HasSubstr("latent is 72; it must be a multiple of 32"));
}

TEST_F(GroupedExperts, entries_are_sorted_by_expert_then_row) {
    const DeviceBuffer experts = to_gpu(std::vector<uint16_t>{7, 2, 2, 9, 1, 7});
    const DeviceBuffer weights = to_gpu(std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f});
    const DeviceBuffer entries = poisoned_on_gpu<WireEntry>(6), count = poisoned_on_gpu<int32_t>(1);
    const DeviceBuffer num_rows = to_gpu(std::vector<int32_t>{2});
    kernels::ExpertEntriesArgs args{.rows = 3,
                                    .top_k = 2,
                                    .experts = experts.as<uint16_t>(),
                                    .weights = weights.as<float>(),
                                    .entries = entries.as<WireEntry>(),
                                    .num_entries = count.as<int32_t>()};
    const auto picks = [&] {
        const Status launched = kernels::expert_entries(args, stream());
        EXPECT_TRUE(launched.is_ok()) << launched.to_string();
        synchronize();
        std::vector<std::tuple<int, int, float>> found;
        for (const WireEntry& e : from_gpu<WireEntry>(entries, from_gpu<int32_t>(count)[0])) {
            found.emplace_back(e.expert, e.row, e.weight);
        }
        return found;
    };
    EXPECT_THAT(picks(), ElementsAre(std::tuple(1, 2, 0.5f), std::tuple(2, 0, 0.2f),
                                     std::tuple(2, 1, 0.3f), std::tuple(7, 0, 0.1f),
                                     std::tuple(7, 2, 0.6f), std::tuple(9, 1, 0.4f)));
    args.num_rows = num_rows.as<int32_t>();
    EXPECT_THAT(picks(), ElementsAre(std::tuple(2, 0, 0.2f), std::tuple(2, 1, 0.3f),
                                     std::tuple(7, 0, 0.1f), std::tuple(9, 1, 0.4f)));
}

}  // namespace
}  // namespace k3pod::testing
