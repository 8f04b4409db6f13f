#include "k3pod/kernels/kda.h"

#include "k3pod/ops/kda.h"
#include "tests/kernel/attention/compare.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::poisoned_on_gpu;
using testing::relative_error;
using testing::to_gpu;

constexpr float kLowerBound = -5.0f, kL2Eps = 1e-6f, kNormEps = 1e-5f;

// Errors of the state add up over the tokens, and the chunked twin rounds differently.
constexpr double kClose = 1e-5;

struct Chunk {
    int32_t first_row, num_rows, slot;
};

// A layer with the state of some slots, on both sides.
class Layer {
  public:
    Layer(const kernels::KdaShape& shape, int32_t rows, int32_t slots,
          testing::RandomValues& random)
        : shape_(shape),
          rows_(rows),
          width_(shape.width()),
          q_conv_(random.normals(width_ * 4, 0.5f)),
          k_conv_(random.normals(width_ * 4, 0.5f)),
          v_conv_(random.normals(width_ * 4, 0.5f)),
          a_log_(random.normals(shape.heads)),
          dt_bias_(random.normals(width_)),
          o_norm_(random.normals(shape.head_dim)),
          q_(random.normals(rows * width_)),
          k_(random.normals(rows * width_)),
          v_(random.normals(rows * width_)),
          f_(random.normals(rows * width_)),
          g_(random.normals(rows * width_)),
          b_(random.normals(int64_t{rows} * shape.heads)),
          state_(random.normals(slots * state_size(), 0.3f)),
          window_(random.normals(slots * 9 * width_)),
          state_gpu_(to_gpu(state_)),
          window_gpu_(to_gpu(window_)) {
        for (const auto* host : {&q_conv_, &k_conv_, &v_conv_, &a_log_, &dt_bias_, &o_norm_, &q_,
                                 &k_, &v_, &f_, &g_, &b_}) {
            on_gpu_.push_back(to_gpu(*host));
        }
    }

    // Output rows of the kernel; rows of no chunk stay poisoned.
    std::vector<float> run_gpu(const std::vector<Chunk>& chunks, int32_t max_rows,
                               CudaStream stream) {
        std::vector<int32_t> first, count, slots;
        for (const Chunk& c : chunks) {
            first.push_back(c.first_row);
            count.push_back(c.num_rows);
            slots.push_back(c.slot);
        }
        const auto first_gpu = to_gpu(first), count_gpu = to_gpu(count), slots_gpu = to_gpu(slots);
        const int64_t bytes = kernels::kda_workspace_bytes(shape_, max_rows, rows_);
        const auto workspace = poisoned_on_gpu<std::byte>(bytes);
        const auto y = poisoned_on_gpu<float>(rows_ * width_);
        const auto at = [&](size_t i) { return on_gpu_[i].as<float>(); };
        const Status done = kernels::kda(
            {.shape = shape_,
             .chunks = {.num_chunks = static_cast<int32_t>(chunks.size()),
                        .max_rows = max_rows,
                        .first_row = first_gpu.as<int32_t>(),
                        .num_rows = count_gpu.as<int32_t>(),
                        .slots = slots_gpu.as<int32_t>()},
             .weights = {at(0), at(1), at(2), at(3), at(4), at(5), kLowerBound, kL2Eps, kNormEps},
             .in = {.q = at(6), .k = at(7), .v = at(8), .f = at(9), .g = at(10), .b = at(11)},
             .state = {.recurrent = state_gpu_.as<float>(),
                       .recurrent_stride = state_size(),
                       .conv_window = window_gpu_.as<float>(),
                       .conv_stride = 9 * width_},
             .y = y.as<float>(),
             .workspace = workspace.data(),
             .num_rows = rows_},
            stream);
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        testing::finish_copies();
        return wait_for(y, stream);
    }

    // The same rows by the twins; advances the CPU's state.
    std::vector<float> run_cpu(const Chunk& c) {
        auto q = convolved(c, q_, q_conv_, 0);
        auto k = convolved(c, k_, k_conv_, 1);
        auto v = convolved(c, v_, v_conv_, 2);
        ops::kda_normalize_qk(shape_.head_dim, kL2Eps, q, k);
        auto decay = rows_of(f_, c, width_);
        ops::kda_gate({c.num_rows, decay, a_log_, dt_bias_, kLowerBound, decay});
        auto beta = rows_of(b_, c, shape_.heads);
        ops::kda_beta(beta);
        std::vector<float> o(v.size());
        ops::kda_recurrence({c.num_rows, shape_.heads, shape_.head_dim, q, k, v, decay, beta,
                             std::span(state_).subspan(c.slot * state_size(), state_size()), o});
        ops::kda_gated_norm({c.num_rows, o, rows_of(g_, c, width_), o_norm_, kNormEps, o});
        return o;
    }

    std::vector<float> state_cpu() const { return state_; }
    std::vector<float> window_cpu() const { return window_; }
    std::vector<float> state_gpu() const { return from_gpu<float>(state_gpu_); }
    std::vector<float> window_gpu() const { return from_gpu<float>(window_gpu_); }
    int64_t width() const { return width_; }

    static std::vector<float> rows_of(const std::vector<float>& all, const Chunk& c,
                                      int64_t width) {
        const auto begin = all.begin() + c.first_row * width;
        return {begin, begin + c.num_rows * width};
    }

  private:
    int64_t state_size() const { return width_ * shape_.head_dim; }

    std::vector<float> convolved(const Chunk& c, const std::vector<float>& x,
                                 const std::vector<float>& taps, int64_t which) {
        auto y = rows_of(x, c, width_);
        const auto window =
            std::span(window_).subspan((c.slot * 9 + which * 3) * width_, 3 * width_);
        ops::kda_short_conv({c.num_rows, taps, y, window, y});
        return y;
    }

    static std::vector<float> wait_for(const DeviceBuffer& y, CudaStream stream) {
        const auto done = DeviceEvent::create().value();
        EXPECT_TRUE(done.record(stream).is_ok());
        const Status status = done.synchronize();
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return from_gpu<float>(y);
    }

    kernels::KdaShape shape_;
    int32_t rows_;
    int64_t width_;
    std::vector<float> q_conv_, k_conv_, v_conv_, a_log_, dt_bias_, o_norm_;
    std::vector<float> q_, k_, v_, f_, g_, b_;
    std::vector<float> state_, window_;
    DeviceBuffer state_gpu_, window_gpu_;
    std::vector<DeviceBuffer> on_gpu_;
};

class KdaKernel : public testing::GpuTest {
  protected:
    testing::RandomValues random;
};

TEST_F(KdaKernel, decode_equals_its_twins_and_leaves_other_slots_and_padding_alone) {
    SCOPED_TRACE(random.trace());
    for (const auto& [heads, dim] : {std::pair{3, 128}, {96, 128}, {2, 16}, {5, 80}}) {
        SCOPED_TRACE(::testing::Message() << heads << " heads of " << dim);
        Layer layer({heads, dim}, 4, 5, random);
        const std::vector<Chunk> chunks{{0, 1, 3}, {1, 1, 0}, {2, 0, 1}, {3, 1, 4}};
        const auto y = layer.run_gpu(chunks, 1, stream());
        for (const Chunk& c : chunks) {
            if (c.num_rows == 0) continue;
            EXPECT_LT(relative_error(Layer::rows_of(y, c, layer.width()), layer.run_cpu(c)),
                      kClose);
        }
        for (int64_t i = 0; i < layer.width(); ++i) {
            ASSERT_TRUE(std::isnan(y[2 * layer.width() + i]));
        }
        EXPECT_LT(relative_error(layer.state_gpu(), layer.state_cpu()), kClose);
        EXPECT_EQ(layer.window_gpu(), layer.window_cpu());
    }
}

TEST_F(KdaKernel, prefill_equals_its_twins_for_any_chunk_length) {
    SCOPED_TRACE(random.trace());
    for (const auto& [heads, dim] : {std::pair{3, 128}, {2, 16}, {3, 48}}) {
        for (const int32_t tokens : {1, 2, 3, 4, 15, 16, 17, 40}) {
            SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << dim << " channels");
            Layer layer({heads, dim}, tokens + 6, 3, random);
            const std::vector<Chunk> chunks{{0, tokens, 2}, {tokens, 0, 0}, {tokens + 1, 5, 1}};
            const auto y = layer.run_gpu(chunks, std::max(tokens, 5), stream());
            for (const Chunk& c : {chunks[0], chunks[2]}) {
                EXPECT_LT(relative_error(Layer::rows_of(y, c, layer.width()), layer.run_cpu(c)),
                          kClose);
            }
            EXPECT_LT(relative_error(layer.state_gpu(), layer.state_cpu()), kClose);
            EXPECT_EQ(layer.window_gpu(), layer.window_cpu());
        }
    }
}

TEST_F(KdaKernel, prefill_of_k3s_heads_drifts_little_over_many_tokens) {
    SCOPED_TRACE(random.trace());
    Layer layer({96, 128}, 200, 1, random);
    const auto y = layer.run_gpu({{0, 200, 0}}, 200, stream());
    EXPECT_LT(relative_error(y, layer.run_cpu({0, 200, 0})), kClose);
    EXPECT_LT(relative_error(layer.state_gpu(), layer.state_cpu()), kClose);
}

TEST_F(KdaKernel, a_sequence_may_be_cut_anywhere_without_changing_a_bit) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kTokens = 21;
    testing::RandomValues again = random;
    Layer whole({3, 128}, kTokens, 1, random);
    Layer parts({3, 128}, kTokens, 1, again);
    const auto y_whole = whole.run_gpu({{0, kTokens, 0}}, kTokens, stream());
    std::vector<float> y_parts;
    for (int32_t t = 0; t < kTokens;) {
        const int32_t n = t == 3 ? 16 : 1;  // decode steps around a chunk of prefill
        const auto y = parts.run_gpu({{t, n, 0}}, n, stream());
        const auto rows = Layer::rows_of(y, {t, n, 0}, parts.width());
        y_parts.insert(y_parts.end(), rows.begin(), rows.end());
        t += n;
    }
    EXPECT_EQ(y_parts, y_whole);
    EXPECT_EQ(parts.state_gpu(), whole.state_gpu());
    EXPECT_EQ(parts.window_gpu(), whole.window_gpu());
}

}  // namespace
}  // namespace k3pod
